"""The biggest word of the monitor: what the engine is doing, for how long, and what comes next."""

from textual.content import Content

from stratadesk.engine.events import Phase
from stratadesk.tui import moment
from stratadesk.tui.figures import clip, milliseconds
from stratadesk.tui.moment import Clock
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.phase_words import (
    SHORT_STEPS,
    SHORT_WORDS,
    STEPS,
    WAS_READ,
    chunk_words,
    current_step,
    just_read,
    phase_clock,
    phase_mark,
    phase_word,
)
from stratadesk.tui.widgets.drawing import MUTED, lines
from stratadesk.tui.widgets.section import Section

TICK_S = 0.5
ARROW, TIGHT_ARROW = " ▸ ", "▸"


class PhaseBanner(Section):
    """A word that changes when the phase does, a clock while the engine works, and the steps.

    A prompt can be read between two redraws. Then it is told for a moment that it was read, and
    how long that took, before the word is that of the phase which followed. `clock` stands still
    from the end of a phase on until the next one is shown.
    """

    def __init__(self, clock: Clock = moment.read) -> None:
        super().__init__()
        self._clock = clock
        self._seen_reading: float | None = None

    def on_mount(self) -> None:
        """Let the clock run."""
        self.set_interval(TICK_S, self.redraw)

    def show(self, state: MonitorState) -> None:
        """Draw `state`, on a ground of its own while the engine works or has failed."""
        self.set_class(state.busy, "-busy")
        self.set_class(state.phase is Phase.FAILED, "-failed")
        if state.phase is Phase.PROMPT and state.trace is not None:
            self._seen_reading = state.trace.began
        super().show(state)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the word with its clock, and the steps of a request with the present one marked."""
        now = self._clock()
        time = phase_clock(state, now)
        note = "  ".join(filter(None, (chunk_words(state), time)))
        word = phase_word(state)
        read = just_read(state, now)
        if read is not None and state.trace and state.trace.began != self._seen_reading:
            word, note = WAS_READ, milliseconds(read)
        if len(word) + len(note) + 4 > width:
            word = SHORT_WORDS.get(word, word)
        if len(word) + len(note) + 4 > width:
            note = time
        word = clip(f"{phase_mark(state)} {word}", width)
        gap = " " * max(width - len(word) - len(note), 1)
        first = Content.assemble(
            (word, _style(state)), (clip(gap + note, width - len(word)), MUTED)
        )
        return lines(first, _steps(current_step(state), width))


def _style(state: MonitorState) -> str:
    if state.phase is Phase.FAILED:
        return "bold $error"
    return "bold $accent" if state.busy else "bold $foreground"


def _steps(current: int | None, width: int) -> Content:
    """The present step in capitals and bold: it reads without colour."""
    roomy = len(ARROW.join(STEPS)) <= width
    names, arrow = (STEPS, ARROW) if roomy else (SHORT_STEPS, TIGHT_ARROW)
    if len(arrow.join(names)) > width:
        return Content.styled(clip(names[current] if current is not None else "", width), MUTED)
    parts = [
        Content.styled(name.upper(), "bold $foreground")
        if i == current
        else Content.styled(name, MUTED)
        for i, name in enumerate(names)
    ]
    return Content.styled(arrow, MUTED).join(parts)
