"""The biggest word of the monitor: what the engine is doing, and for how long."""

import time

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from stratadesk.engine.events import Phase
from stratadesk.tui.figures import clock
from stratadesk.tui.monitor_state import PHASE_WORDS, MonitorState

TICK_S = 0.2
MARKS = {Phase.READY: "●", Phase.FAILED: "✗", Phase.EMPTY: "○"}
BUSY_MARK = "▶"


class PhaseBanner(Horizontal):
    """A word that changes when the phase does, and a clock that runs while the engine works."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._state = MonitorState()
        self._word = Static("", id="phase-word", markup=False)
        self._clock = Static("", id="phase-clock", markup=False)

    def compose(self) -> ComposeResult:
        """Make the word and the clock."""
        yield self._word
        yield self._clock

    def on_mount(self) -> None:
        """Let the clock run."""
        self.set_interval(TICK_S, self._tick)
        self.show(self._state)

    def show(self, state: MonitorState) -> None:
        """Show the phase of `state`."""
        self._state = state
        _write(self._word, f"{phase_mark(state.phase)} {PHASE_WORDS[state.phase]}")
        self.set_class(state.busy, "-busy")
        self.set_class(state.phase is Phase.FAILED, "-failed")
        self._tick()

    def _tick(self) -> None:
        _write(self._clock, elapsed(self._state, time.monotonic()))


def phase_mark(phase: Phase) -> str:
    """Return the glyph that goes with a phase."""
    return MARKS.get(phase, BUSY_MARK)


def elapsed(state: MonitorState, now: float) -> str:
    """Write how long the engine has been at it; nothing while it rests."""
    if state.busy and state.since is not None:
        return clock(now - state.since)
    return ""


def _write(label: Static, text: str) -> None:
    if label.content != text:
        label.update(text, layout=False)
