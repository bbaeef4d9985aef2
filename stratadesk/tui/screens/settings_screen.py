"""All settings on one page, one key each, with what a change does before it is made."""

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from stratadesk.tui.bindings import bind
from stratadesk.tui.layout import ROW_CLASSES
from stratadesk.tui.ports import Prospect
from stratadesk.tui.reload_choices import RELOAD_CHOICES
from stratadesk.tui.settings_desk import SettingsDesk
from stratadesk.tui.settings_rows import reload_words, settings_rows
from stratadesk.tui.widgets.settings_table import SettingsTable
from stratadesk.tui.widgets.told_scroll import ToldScroll

HELP = "One key each. Esc goes back; what waits for a reload is then forgotten."
OWN_CARD = "This model's card is its own: for the next start only look and device are kept."
MOST_MIB = 10_000_000


class SettingsScreen(ModalScreen[None]):
    """Lies over the chat; live changes go through the same control as the chat's keys."""

    AUTO_FOCUS = ""
    VERTICAL_BREAKPOINTS = ROW_CLASSES
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("stop", "close"),
        bind("settings", "close"),
        bind("monitor", "app.chat('cycle_monitor')"),
        bind("thinking", "app.chat('toggle_thinking')"),
        bind("page_up", "page(-1)"),
        bind("page_down", "page(1)"),
        bind("set_reserve", "type_reserve"),
        bind("set_theme", "cycle_theme"),
        *(bind(choice.key_id, f"choose('{choice.key_id}')") for choice in RELOAD_CHOICES),
    ]

    def __init__(self, desk: SettingsDesk) -> None:
        super().__init__()
        self._desk = desk
        self._table = SettingsTable()
        self._change = Static("", id="settings-change", markup=False)
        self._prospect = Static("", id="settings-prospect", markup=False)
        self._again = Static("", id="settings-reload", markup=False)
        self._own = Static("", id="settings-own", markup=False)
        self._typed = Input(placeholder="reserve in MiB", type="integer", id="settings-reserve")

    def compose(self) -> ComposeResult:
        """Make the table, the line for typing, and the lines that say what changes."""
        with ToldScroll(id="settings", can_focus=False):
            yield Static("Settings", id="settings-title")
            yield self._table
            yield self._typed
            yield self._change
            yield self._prospect
            yield self._again
            yield Static(HELP, id="settings-help")
            yield self._own

    def on_mount(self) -> None:
        """Begin without the line for typing."""
        self._typed.display = False
        self.show()

    def show(self) -> None:
        """Draw what is set and wanted now."""
        desk = self._desk
        self._table.show(settings_rows(desk.state, desk.control, desk.look, desk.fixed))
        _write(self._own, "" if desk.keeps("max_context") else OWN_CARD)
        _write(self._change, desk.control.words(desk.state))
        prospect = self._prospect_known
        words, again = reload_words(desk.state, desk.control, prospect)
        _write(self._prospect, words)
        _write(self._again, again)

    @property
    def _prospect_known(self) -> Prospect | None:
        settings, prospect = self._desk.foreseen or (None, None)
        return prospect if settings == self._desk.control.settings else None

    def action_choose(self, key_id: str) -> None:
        """Go on to the next value of a setting that needs a reload, and foresee what it gives."""
        choice = next(choice for choice in RELOAD_CHOICES if choice.key_id == key_id)
        self._desk.control.choose(choice, self._desk.state)
        self.show()
        self._foresee()

    def action_page(self, way: int) -> None:
        """Show what a low screen hides: below when `way` is positive, else above."""
        page = self.query_one(ToldScroll)
        (page.scroll_page_down if way > 0 else page.scroll_page_up)(animate=False)

    def action_type_reserve(self) -> None:
        """Let the reserve be typed."""
        self._typed.display = True
        self._typed.focus()

    def action_cycle_theme(self) -> None:
        """Go on to the next theme."""
        self._desk.next_theme()
        self.show()

    def action_close(self) -> None:
        """Close the line for typing; else take back an announced change; else go back."""
        if self._typed.display:
            self._end_typing()
        elif not self._desk.control.dial.take_back():
            self._desk.control.give_up()
            self.dismiss()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Want the reserve that was typed."""
        event.stop()
        digits = event.value.strip()
        if digits.isdecimal() and int(digits) <= MOST_MIB:
            self._desk.control.set_reserve(self._desk.state, int(digits))
            self._end_typing()
        else:
            self.notify("The reserve is a whole number of MiB, 0 or more.", markup=False)

    def _end_typing(self) -> None:
        self._typed.value = ""
        self._typed.display = False
        self.set_focus(None)
        self.show()

    @work(thread=True, exclusive=True, group="foresee")
    def _foresee(self) -> None:
        self._desk.foresee()
        self.app.call_from_thread(self.show)


def _write(label: Static, words: str) -> None:
    label.display = bool(words)
    if label.content != words:
        label.update(words)
