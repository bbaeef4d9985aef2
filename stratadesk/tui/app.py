"""The app: screens, keys, and the road between them and the engine."""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import TextArea

from stratadesk.engine.commands import Command, EngineSettings, LoadModel, SamplingSettings
from stratadesk.engine.events import Failure
from stratadesk.engine.failures import failure_of
from stratadesk.errors import StrataDeskError
from stratadesk.keys import find_key
from stratadesk.tui.ascii_filter import AsciiFilter
from stratadesk.tui.bindings import bind
from stratadesk.tui.bridge import Bridge
from stratadesk.tui.exit_status import ExitStatus
from stratadesk.tui.handover import HandOver, Handover, Turn
from stratadesk.tui.keeper import Keeper
from stratadesk.tui.live_control import LiveControl
from stratadesk.tui.messages import EngineWoke, TellEngine
from stratadesk.tui.options import USUAL, AppOptions
from stratadesk.tui.ports import Discover, EnginePort
from stratadesk.tui.reload_choices import MEMORY_FIELDS
from stratadesk.tui.screens.chat_screen import ChatScreen
from stratadesk.tui.screens.help_screen import HelpScreen
from stratadesk.tui.screens.picker_screen import PickerScreen
from stratadesk.tui.screens.settings_screen import SettingsScreen
from stratadesk.tui.settings_desk import SettingsDesk
from stratadesk.tui.signals import on_termination
from stratadesk.tui.themes import DARK, THEMES, following_theme

QUIT_WINDOW_S = 2.0

log = logging.getLogger(__name__)


class StrataDeskApp(App[None]):
    """The terminal app around one engine, which it starts and always stops.

    Without `model` the models that `discover` finds are offered. `max_tokens` bounds each
    answer, 0 meaning the context's end. After `run`, `failed_with` tells what ended the app if
    it was not the user; nothing is printed about it. `handed_over` is set when the user wants the
    program to start once more, to what `hand_over` returned.
    """

    TITLE = "StrataDesk"
    CSS_PATH = "stratadesk.tcss"
    COMMAND_PALETTE_BINDING = find_key("palette").key
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("help", "show_help", priority=True),
        bind("model", "choose_model", priority=True),
        bind("alias", "cycle_alias", priority=True),
        bind("reserve_down", "turn_reserve(-1)", priority=True),
        bind("reserve_up", "turn_reserve(1)", priority=True),
        bind("reload", "reload", priority=True),
        bind("settings", "show_settings", priority=True),
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
        options: AppOptions = USUAL,
    ) -> None:
        self._ascii = AsciiFilter(enabled=options.look.ascii)
        super().__init__()
        self._engine = engine
        self._model = model
        self._discover = discover
        self._options = options
        self._cards = options.cards
        self.handed_over: Path | None = None
        self._keeper = Keeper(options.remember, self.set_timer)
        self._sampling = sampling
        self._start_theme = self._known_theme = options.look.theme
        self._control = LiveControl(
            settings, self._tell, self._keep, self._say, self.set_timer, self._show_change
        )
        self._bridge = Bridge(
            engine.events, lambda: self.post_message(EngineWoke()), self.set_timer
        )
        self._chat_screen = ChatScreen(
            max_tokens, sampling, self._control, options.look, self._bridge.phase_time
        )
        self._desk = SettingsDesk(
            self._control,
            lambda: self._chat_screen.state,
            lambda: {**self._chat_screen.look, "theme": self.theme},
            lambda: self._model,
            options.foresee,
            self._next_theme,
            options.fixed,
            lambda field: self._keeps(field, self._control.settings),
        )
        self._exit_status = ExitStatus()
        self._interrupted_at = float("-inf")

    @property
    def chat_screen(self) -> ChatScreen:
        """The main screen."""
        return self._chat_screen

    @property
    def exit_code(self) -> int:
        """What the process is to end with: 0, a signal's code, or that of a model not loaded."""
        return self.return_code or self._exit_status.code

    @property
    def left_without_model(self) -> Failure | None:
        """The failure that `exit_code` tells of, None when it tells of something else."""
        return None if self.return_code else self._exit_status.failure

    @property
    def failed_with(self) -> Exception | None:
        """The error that ended the app, already in the log; None after a proper end."""
        return self._exception

    async def on_mount(self) -> None:
        """Show the chat, start the engine, and load the model or ask for one."""
        for theme in THEMES:
            self.register_theme(theme)
        known = self._start_theme in self.available_themes
        self.theme = self._known_theme = self._start_theme if known else DARK.name
        self.theme_changed_signal.subscribe(self, self._theme_changed)
        on_termination(lambda code: self.exit(return_code=code))
        await self.push_screen(self._chat_screen)
        self._engine.start()
        if self._model is None:
            self.action_choose_model()
        else:
            self._load(self._model)
        chat = self._options.chat
        if chat is not None:
            await self._chat_screen.chat.take_over(chat)
            # Once the theme is applied, which would go through every widget of the chat.
            self.call_after_refresh(self._bring_back, chat.turns)
        self._bridge.open()

    @work
    async def _bring_back(self, turns: Sequence[Turn]) -> None:
        """Show a chat that was handed over; keys work meanwhile, and the engine is heard."""
        await self._chat_screen.chat.bring_back(turns)

    async def on_unmount(self) -> None:
        """Stop the engine; by now the terminal is the user's again."""
        self._bridge.close()
        await asyncio.to_thread(self._keeper.write)
        await asyncio.to_thread(self._engine.stop)

    async def on_engine_woke(self) -> None:
        """Show what the engine said."""
        batch = self._bridge.read()
        self._exit_status.follow(batch)
        await self._chat_screen.apply(batch)
        self._show_settings()

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
        if self.screen is self._chat_screen or isinstance(self.screen, SettingsScreen):
            self.push_screen(PickerScreen(self._discover), self._chosen)

    def action_cycle_alias(self) -> None:
        """Let prompts take the head's bytes: auto, on, off."""
        self._control.cycle_alias(self._chat_screen.state)

    def action_turn_reserve(self, steps: int) -> None:
        """Turn the reserve up, or down when `steps` is negative."""
        self._control.turn_reserve(self._chat_screen.state, steps)

    async def action_reload(self) -> None:
        """Load the model again, with what was chosen; a card that is lost needs a new process."""
        if self._chat_screen.state.lost is not None and self._options.hand_over is not None:
            await self._start_again(self._options.hand_over)
            return
        if self._model is None:
            self._say("There is no model to load again.")
            return
        self._chat_screen.chat.stop()
        self._load(self._model)

    def action_show_settings(self) -> None:
        """Show the settings, or hide them again."""
        if self.screen is self._chat_screen:
            self.push_screen(SettingsScreen(self._desk))
        elif isinstance(self.screen, SettingsScreen):
            self.screen.action_close()

    def action_chat(self, action: str) -> None:
        """Do something to the chat screen from the screen over it, and remember its look."""
        getattr(self._chat_screen, f"action_{action}")()
        self._show_settings()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Draw with ASCII characters only where that is wanted."""
        filters = super().get_line_filters()
        return [*filters, self._ascii] if self._ascii.enabled else filters

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
        alias = ("alias", "Head alias: auto, on or off", self.action_cycle_alias)
        for key_id, title, callback in (
            ("new_chat", "New chat", chat_screen.action_new_chat),
            ("model", "Choose a model", self.action_choose_model),
            ("settings", "Settings", self.action_show_settings),
            *(() if self._control.on_real_card else (alias,)),
            ("reserve_down", "Reserve down", lambda: self.action_turn_reserve(-1)),
            ("reserve_up", "Reserve up", lambda: self.action_turn_reserve(1)),
            ("reload", "Reload the model", self.action_reload),
            ("monitor", "Monitor wide, narrow or off", chat_screen.action_cycle_monitor),
            ("thinking", "Thinking shown or hidden", chat_screen.action_toggle_thinking),
            ("stop", "Stop the answer or the loading", chat_screen.action_stop),
            ("help", "Help: all keys", self.action_show_help),
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
        if isinstance(self.screen, SettingsScreen):
            self.screen.dismiss()
        self._model = model
        self._chat_screen.chat.expect_model()
        self._chat_screen.chat.sampling = self._cards.sampling(model, self._sampling)
        self._chat_screen.chat.remembered = self._cards.remembered(model)
        self._control.fit(lambda settings: self._cards.fit(model, settings))
        self._tell(LoadModel(model, self._control.settle()))

    async def _start_again(self, hand_over: HandOver) -> None:
        """Hand the chat over and leave; stay where it cannot be kept."""
        everything = Handover(
            None if self._model is None else str(self._model),
            self._control.settle(),
            self._sampling,
            self._chat_screen.look_with(self.theme),
            self._chat_screen.chat.record(),
        )
        try:
            self.handed_over = hand_over(everything)
        except StrataDeskError as error:
            log.warning("the chat was not handed over: %s", error)
            await self._chat_screen.chat.apply(failure_of(error, "Starting again", None, None))
        else:
            self.exit()

    def _show_change(self) -> None:
        self._chat_screen.show_change()
        self._show_settings()

    def _show_settings(self) -> None:
        if isinstance(self.screen, SettingsScreen):
            self.screen.show()

    def _next_theme(self) -> None:
        self.theme = following_theme(self.theme)

    def _theme_changed(self, theme: Theme) -> None:
        # The theme that the app starts with is announced as well.
        if theme.name != self._known_theme:
            self._known_theme = theme.name
            self._keep("theme", theme.name, self._control.settings)
            self._show_settings()

    def _say(self, words: str) -> None:
        self.notify(words, markup=False)

    def _keep(self, key: str, value: object, held: EngineSettings) -> None:
        if self._keeps(key, held):
            self._keeper.keep(key, value, self._write_kept)

    def _keeps(self, key: str, held: EngineSettings) -> bool:
        """Whether a choice made with `held` is for the next start; those about memory together."""
        together = MEMORY_FIELDS if key in MEMORY_FIELDS else (key,)
        return all(self._cards.keeps(each, held) for each in together)

    @work(thread=True, exclusive=True, group="keeper")
    def _write_kept(self) -> None:
        trouble = self._keeper.write()
        if trouble:
            self.call_from_thread(self._say, trouble)

    def _tell(self, command: Command) -> None:
        self._engine.send(command)
