"""The app: screens, keys, and the road between them and the engine."""

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import TextArea

from stratadesk.engine.commands import Command, EngineSettings, LoadModel, SamplingSettings
from stratadesk.exit_codes import ExitCode
from stratadesk.keys import find_key
from stratadesk.tui.bindings import bind
from stratadesk.tui.bridge import Bridge
from stratadesk.tui.messages import EngineWoke, TellEngine
from stratadesk.tui.ports import Discover, EnginePort
from stratadesk.tui.screens.chat_screen import ChatScreen
from stratadesk.tui.screens.help_screen import HelpScreen
from stratadesk.tui.screens.picker_screen import PickerScreen
from stratadesk.tui.signals import on_termination
from stratadesk.tui.themes import DARK, LIGHT

QUIT_WINDOW_S = 2.0

log = logging.getLogger(__name__)


class StrataDeskApp(App[None]):
    """The terminal app around one engine, which it starts and always stops.

    Without `model` the models that `discover` finds are offered. `max_tokens` bounds each
    answer, 0 meaning the context's end. After `run`, `failed_with` tells what ended the app if
    it was not the user; nothing is printed about it.
    """

    TITLE = "StrataDesk"
    CSS_PATH = "stratadesk.tcss"
    COMMAND_PALETTE_BINDING = find_key("palette").key
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("help", "show_help", priority=True),
        bind("model", "choose_model", priority=True),
        bind("interrupt", "interrupt", priority=True),
        bind("quit", "quit", priority=True),
    ]

    def __init__(
        self,
        engine: EnginePort,
        model: Path | None,
        max_tokens: int,
        settings: EngineSettings,
        sampling: SamplingSettings,
        discover: Discover,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._model = model
        self._settings = settings
        self._discover = discover
        self._chat_screen = ChatScreen(max_tokens, sampling)
        self._bridge = Bridge(
            engine.events, lambda: self.post_message(EngineWoke()), self.set_timer
        )
        self._interrupted_at = float("-inf")

    @property
    def failed_with(self) -> Exception | None:
        """The error that ended the app, already in the log; None after a proper end."""
        return self._exception

    async def on_mount(self) -> None:
        """Show the chat, start the engine, and load the model or ask for one."""
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        on_termination(lambda: self.exit(return_code=ExitCode.INTERRUPTED))
        await self.push_screen(self._chat_screen)
        self._engine.start()
        self._bridge.open()
        if self._model is None:
            self.action_choose_model()
        else:
            self._load(self._model)

    async def on_unmount(self) -> None:
        """Stop the engine; by now the terminal is the user's again."""
        self._bridge.close()
        await asyncio.to_thread(self._engine.stop)

    async def on_engine_woke(self) -> None:
        """Show what the engine said."""
        await self._chat_screen.apply(self._bridge.read())

    def on_tell_engine(self, message: TellEngine) -> None:
        """Pass a command on."""
        self._tell(message.command)

    def action_show_help(self) -> None:
        """Show the keys, or hide them again."""
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        else:
            self.push_screen(HelpScreen())

    def action_choose_model(self) -> None:
        """Offer the models on this machine."""
        if self.screen is self._chat_screen:
            self.push_screen(PickerScreen(self._discover), self._chosen)

    def action_interrupt(self) -> None:
        """Copy what is selected; else stop the answer; else ask for a second press to quit."""
        selected = self._selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            self.notify(f"Copied {len(selected):,} characters", markup=False)
        elif self._chat_screen.chat.busy:
            self._chat_screen.chat.stop()
        elif time.monotonic() - self._interrupted_at < QUIT_WINDOW_S:
            self.exit()
        else:
            self._interrupted_at = time.monotonic()
            self.notify("Press Ctrl+C again to quit", timeout=QUIT_WINDOW_S, markup=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """List the commands of the palette: every key's action, and those without a key."""
        chat_screen = self._chat_screen
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        if chat_screen.chat.offers_chatml:
            yield SystemCommand(
                "Answer with ChatML",
                "Ask again, with ChatML instead of the model's template",
                chat_screen.chat.answer_with_chatml,
            )
        for key_id, title, callback in (
            ("new_chat", "New chat", chat_screen.action_new_chat),
            ("model", "Choose a model", self.action_choose_model),
            ("monitor", "Monitor wide, narrow or off", chat_screen.action_cycle_monitor),
            ("thinking", "Thinking shown or hidden", chat_screen.action_toggle_thinking),
            ("stop", "Stop the answer", chat_screen.action_stop),
            ("help", "Keys", self.action_show_help),
            ("quit", "Quit", self.exit),
        ):
            yield SystemCommand(title, find_key(key_id).tooltip, callback)

    def _handle_exception(self, error: Exception) -> None:
        log.error("the app failed", exc_info=error)
        super()._handle_exception(error)
        self._exit_renderables.clear()

    def _selected_text(self) -> str:
        if isinstance(self.focused, TextArea) and self.focused.selected_text:
            return self.focused.selected_text
        return self.screen.get_selected_text() or ""

    def _chosen(self, model: Path | None) -> None:
        if model is not None:
            self._chat_screen.chat.stop()
            self._load(model)

    def _load(self, model: Path) -> None:
        self._tell(LoadModel(model, self._settings))

    def _tell(self, command: Command) -> None:
        self._engine.send(command)
