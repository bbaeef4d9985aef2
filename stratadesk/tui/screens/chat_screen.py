"""The main screen: the chat, and the monitor beside or above it."""

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.timer import Timer

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.events import DecodeProgress, Event, PromptProgress, TextDelta
from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui import moment
from stratadesk.tui.bindings import bind
from stratadesk.tui.footer import footer
from stratadesk.tui.layout import (
    FOLD_BELOW_ROWS,
    TIGHT_BELOW_ROWS,
    MonitorChoice,
    MonitorForm,
    monitor_form,
)
from stratadesk.tui.live_control import LiveControl
from stratadesk.tui.moment import Clock
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.screens.settling import Settling
from stratadesk.tui.widgets.alarm_bar import AlarmBar
from stratadesk.tui.widgets.change_line import ChangeLine
from stratadesk.tui.widgets.chat_pane import ChatPane
from stratadesk.tui.widgets.key_bar import KeyBar
from stratadesk.tui.widgets.monitor_pane import MonitorPane
from stratadesk.tui.widgets.status_line import StatusLine
from stratadesk.tui.widgets.title_bar import TitleBar

RUNNING = (PromptProgress, TextDelta, DecodeProgress)
FIGURES_EVERY_S = 0.25
"""How often figures are drawn while nothing but they change."""


class ChatScreen(Settling, Screen[None]):
    """Hands each event to the chat, and one snapshot per batch to everything that draws it.

    `phase_time` is the clock for how long a phase has lasted.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("stop", "stop"),
        bind("monitor", "cycle_monitor", priority=True),
        bind("thinking", "toggle_thinking", priority=True),
        bind("new_chat", "new_chat", priority=True),
        bind("page_up", "page_up", priority=True),
        bind("page_down", "page_down", priority=True),
    ]

    def __init__(
        self,
        max_tokens: int,
        sampling: SamplingSettings,
        control: LiveControl,
        look: InterfaceSettings,
        phase_time: Clock = moment.read,
    ) -> None:
        super().__init__()
        self._control = control
        self._alarm = AlarmBar()
        self._change = ChangeLine()
        self._title = TitleBar()
        self._line = StatusLine(phase_time)
        self._chat = ChatPane(max_tokens, sampling)
        self._monitor = MonitorPane(phase_time)
        self._keys = KeyBar()
        self._state = MonitorState()
        self._pending: Timer | None = None
        self._shown_at = float("-inf")
        self._choice = MonitorChoice(look.monitor)
        self._thinking_shown = look.thinking == "shown"

    def compose(self) -> ComposeResult:
        """Make the title, the two panes, the folded monitor and the keys."""
        yield self._title
        yield self._alarm
        yield self._line
        with Horizontal(id="panes"):
            yield self._chat
            yield self._monitor
        yield self._change
        yield self._keys

    def on_mount(self) -> None:
        """Start with the editor ready."""
        self._chat.show_thinking(self._thinking_shown)
        self._chat.composer.focus_editor()
        self._arrange()

    def on_resize(self, _event: events.Resize) -> None:
        """Give the monitor the form that fits."""
        self._arrange()

    def on_key(self, event: events.Key) -> None:
        """Let text go to the editor wherever the focus is."""
        if event.is_printable and event.character and not event.character.isspace():
            self._chat.composer.type_text(event.character)

    def on_tell_engine(self) -> None:
        """Offer the key that stops an answer from the moment on that it is asked for."""
        self._show_keys()

    def on_chat_pane_stop_changed(self) -> None:
        """Offer the key for what there is to stop now."""
        self._show_keys()

    @property
    def chat(self) -> ChatPane:
        """The chat."""
        return self._chat

    @property
    def streams(self) -> bool:
        """Whether an answer is being written."""
        return self._chat.busy

    @property
    def state(self) -> MonitorState:
        """What is known of the engine."""
        return self._state

    @property
    def look(self) -> dict[str, str]:
        """The choices about the screen, by their names in the settings file."""
        thinking = "shown" if self._thinking_shown else "hidden"
        return {"monitor": self._choice.value, "thinking": thinking}

    def look_with(self, theme: str) -> InterfaceSettings:
        """The choices about the screen, and the colours, for another run of the program."""
        monitor, thinking = self.look["monitor"], self.look["thinking"]
        return InterfaceSettings(theme, monitor=monitor, thinking=thinking)

    async def apply(self, batch: tuple[Event, ...]) -> None:
        """Show a batch of engine events."""
        for event in batch:
            if not self.is_attached:
                return
            self._state = advance(self._state, event)
            await self._chat.apply(event)
        self._forget_context()
        if batch and self.is_attached:
            self._control.follow(self._state, batch)
            self._show_in_time(at_once=not all(isinstance(event, RUNNING) for event in batch))

    async def action_stop(self) -> None:
        """Take back a change that is only announced; else let the chat give up what it does."""
        if not self._control.dial.take_back():
            await self._chat.give_up()

    def show_change(self) -> None:
        """Show what a key will change or has changed, and the present values."""
        if not self.is_attached:
            return
        self._change.show(self._control.words(self._state))
        self._keys.display = not self._control.replaces_keys(self._state)
        self._show_keys()

    def action_cycle_monitor(self) -> None:
        """Go on to the next width of the monitor."""
        self._choice = self._choice.following()
        self._control.keep("monitor", self._choice.value)
        self._arrange()

    def action_toggle_thinking(self) -> None:
        """Show or hide all thinking."""
        self._thinking_shown = not self._thinking_shown
        self._chat.show_thinking(self._thinking_shown)
        shown = self.look["thinking"]
        model = self._state.model
        without = "" if model is None or model.thinks else "; this model does not think"
        self._control.keep("thinking", shown, f"Thinking {shown}{without}")

    async def action_new_chat(self) -> None:
        """Forget the chat."""
        await self._chat.start_over()
        self._forget_context()
        self._show()

    def action_page_up(self) -> None:
        """Scroll the transcript a page up."""
        self._chat.transcript.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        """Scroll the transcript a page down."""
        self._chat.transcript.scroll_page_down(animate=False)

    def _forget_context(self) -> None:
        """Count no tokens of a chat that is over, whatever the engine still holds of it."""
        if self._chat.started_over:
            self._state = replace(self._state, context_used=0)

    def _arrange(self) -> None:
        form = monitor_form(self._choice, *self.size)
        low = self.size.height < TIGHT_BELOW_ROWS
        self._monitor.take_form(form, low=low)
        self._line.display = form is MonitorForm.LINE
        self.set_class(self.size.height < FOLD_BELOW_ROWS, "-short")
        self.set_class(low, "-low")
        self._show()

    def _show_in_time(self, *, at_once: bool) -> None:
        """Draw figures at once when a phase or the like has changed, else a few times a second."""
        wait = self._shown_at + FIGURES_EVERY_S - moment.now()
        if at_once or wait <= 0:
            self._show()
        elif self._pending is None:
            self._pending = self.set_timer(wait, self._show)

    def _show(self) -> None:
        if self._pending is not None:
            self._pending.stop()
        self._pending, self._shown_at = None, moment.now()
        self._title.show(self._state)
        self._alarm.show(self._state)
        self._line.show(self._state)
        self._monitor.show(self._state)
        self._chat.show(self._state)
        self.show_change()

    def _show_keys(self) -> None:
        self._keys.show(footer(self._state, self._control, self.look, self._chat.stoppable))
