"""The main screen: the chat, and the monitor beside or above it."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.events import Event
from stratadesk.tui.bindings import bind
from stratadesk.tui.layout import (
    FOLD_BELOW_ROWS,
    TIGHT_BELOW_ROWS,
    MonitorChoice,
    MonitorForm,
    monitor_form,
)
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.widgets.chat_pane import ChatPane
from stratadesk.tui.widgets.key_bar import KeyBar, KeyItem
from stratadesk.tui.widgets.monitor_pane import MonitorPane
from stratadesk.tui.widgets.status_line import StatusLine
from stratadesk.tui.widgets.title_bar import TitleBar


class ChatScreen(Screen[None]):
    """Hands each event to the chat, and one snapshot per batch to everything that draws it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("stop", "stop"),
        bind("monitor", "cycle_monitor", priority=True),
        bind("thinking", "toggle_thinking", priority=True),
        bind("new_chat", "new_chat", priority=True),
        bind("page_up", "page_up", priority=True),
        bind("page_down", "page_down", priority=True),
    ]

    def __init__(self, max_tokens: int, sampling: SamplingSettings) -> None:
        super().__init__()
        self._title = TitleBar()
        self._line = StatusLine()
        self._chat = ChatPane(max_tokens, sampling)
        self._monitor = MonitorPane()
        self._keys = KeyBar()
        self._state = MonitorState()
        self._choice = MonitorChoice.WIDE
        self._thinking_shown = False

    def compose(self) -> ComposeResult:
        """Make the title, the two panes, the folded monitor and the keys."""
        yield self._title
        yield self._line
        with Horizontal(id="panes"):
            yield self._chat
            yield self._monitor
        yield self._keys

    def on_mount(self) -> None:
        """Start with the editor ready."""
        self._chat.composer.focus_editor()
        self._arrange()

    def on_resize(self, _event: events.Resize) -> None:
        """Give the monitor the form that fits."""
        self._arrange()

    def on_key(self, event: events.Key) -> None:
        """Let text go to the editor wherever the focus is."""
        if event.is_printable and event.character and not event.character.isspace():
            self._chat.composer.type_text(event.character)

    @property
    def chat(self) -> ChatPane:
        """The chat."""
        return self._chat

    async def apply(self, batch: tuple[Event, ...]) -> None:
        """Show a batch of engine events."""
        for event in batch:
            if not self.is_attached:
                return
            self._state = advance(self._state, event)
            await self._chat.apply(event)
        if batch and self.is_attached:
            self._show()

    def action_stop(self) -> None:
        """Stop the answer."""
        self._chat.stop()

    def action_cycle_monitor(self) -> None:
        """Go on to the next width of the monitor."""
        self._choice = self._choice.following()
        self._arrange()

    def action_toggle_thinking(self) -> None:
        """Show or hide all thinking."""
        self._thinking_shown = not self._thinking_shown
        self._chat.show_thinking(self._thinking_shown)
        self._show_keys()

    async def action_new_chat(self) -> None:
        """Forget the chat."""
        await self._chat.start_over()
        self._show_keys()

    def action_page_up(self) -> None:
        """Scroll the transcript a page up."""
        self._chat.transcript.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        """Scroll the transcript a page down."""
        self._chat.transcript.scroll_page_down(animate=False)

    def _arrange(self) -> None:
        form = monitor_form(self._choice, *self.size)
        self._monitor.take_form(form)
        self._line.display = form is MonitorForm.LINE
        self.set_class(self.size.height < FOLD_BELOW_ROWS, "-short")
        self.set_class(self.size.height < TIGHT_BELOW_ROWS, "-low")
        self._show()

    def _show(self) -> None:
        self._title.show(self._state)
        self._line.show(self._state)
        self._monitor.show(self._state)
        self._chat.show(self._state)
        self._show_keys()

    def _show_keys(self) -> None:
        thinking = "shown" if self._thinking_shown else "hidden"
        self._keys.show(
            (
                KeyItem("help", "app.show_help", weight=4),
                KeyItem("model", "app.choose_model", weight=3),
                KeyItem("monitor", "screen.cycle_monitor", self._choice.value, weight=2),
                KeyItem("thinking", "screen.toggle_thinking", thinking, weight=2),
                KeyItem("stop", "screen.stop", weight=5, idle=not self._chat.busy),
                KeyItem("new_chat", "screen.new_chat", weight=1),
                KeyItem("palette", "app.command_palette", weight=0),
                KeyItem("quit", "app.quit", weight=4),
            )
        )
