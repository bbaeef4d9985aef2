"""What the settings screen needs of the app, in one piece."""

from collections.abc import Callable
from pathlib import Path

from stratadesk.engine.commands import EngineSettings
from stratadesk.tui.live_control import LiveControl
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.ports import Foresee, Prospect


class SettingsDesk:
    """Reads the app's state whenever it is asked; `fixed` names what was given for this run.

    `keeps` tells whether a choice of the name is one for the next start.
    """

    def __init__(
        self,
        control: LiveControl,
        state: Callable[[], MonitorState],
        look: Callable[[], dict[str, str]],
        model: Callable[[], Path | None],
        foresee: Foresee,
        next_theme: Callable[[], None],
        fixed: frozenset[str],
        keeps: Callable[[str], bool],
    ) -> None:
        self.control = control
        self.fixed = fixed
        self.keeps = keeps
        self.next_theme = next_theme
        self.foreseen: tuple[EngineSettings, Prospect | None] | None = None
        """Settings and what they would give, for those looked into last."""
        self._state = state
        self._look = look
        self._model = model
        self._foresee = foresee

    @property
    def state(self) -> MonitorState:
        """What is known of the engine."""
        return self._state()

    @property
    def look(self) -> dict[str, str]:
        """The choices about the screen."""
        return self._look()

    def foresee(self) -> None:
        """Find out what a reload would give; waits for a file, so not on the app's thread."""
        settings, model = self.control.settings, self._model()
        if model is not None and self.control.waits_for_reload:
            self.foreseen = settings, self._foresee(model, settings)
