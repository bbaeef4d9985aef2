"""The list of keys, made from the one table."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from stratadesk.keys import KEYS, Key, find_key
from stratadesk.tui.bindings import bind
from stratadesk.tui.layout import ROW_CLASSES


class HelpScreen(ModalScreen[None]):
    """Lies over any screen; Esc or F1 closes it."""

    VERTICAL_BREAKPOINTS = ROW_CLASSES
    BINDINGS: ClassVar[list[BindingType]] = [bind("stop", "close"), bind("help", "close")]

    def compose(self) -> ComposeResult:
        """Make a row for each key."""
        with KeyList(id="help"):
            for key in KEYS:
                yield KeyRow(key)

    def action_close(self) -> None:
        """Go back."""
        self.dismiss()


class KeyList(VerticalScroll):
    """As high as its rows or the screen; where the screen is less, it scrolls and says so."""

    BORDER_TITLE = "Keys"

    def on_resize(self) -> None:
        """Say what is hidden now, once the rows have their places."""
        self.call_after_refresh(self._tell_hidden)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll, and say what is hidden then."""
        super().watch_scroll_y(old_value, new_value)
        self._tell_hidden()

    def _tell_hidden(self) -> None:
        above = round(self.scroll_y)
        self.border_subtitle = hidden_words(above, self.max_scroll_y - above)


def hidden_words(above: int, below: int) -> str:
    """Say how many rows there are above and below those on screen, and which keys show them.

    >>> hidden_words(0, 8), hidden_words(3, 5), hidden_words(0, 0)
    ('8 more below · PgDn', '3 more above · PgUp · 5 more below · PgDn', '')
    """
    sides = ((above, "above", "page_up"), (below, "below", "page_down"))
    return " · ".join(
        f"{count} more {side} · {find_key(key_id).caption}"
        for count, side, key_id in sides
        if count > 0
    )


class KeyRow(Horizontal):
    """A key, its label, and what it does."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key

    def compose(self) -> ComposeResult:
        """Make the three columns."""
        yield Static(self._key.caption, classes="key", markup=False)
        yield Static(self._key.label, classes="label", markup=False)
        yield Static(self._key.tooltip, classes="tooltip", markup=False)
