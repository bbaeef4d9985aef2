"""The monitor folded to one line, for small terminals."""

import time

from textual.content import Content

from stratadesk.engine.events import Phase
from stratadesk.tui.figures import clip, fit, gib, short_count
from stratadesk.tui.monitor_state import PHASE_WORDS, MonitorState
from stratadesk.tui.widgets.drawing import MUTED, STRONG
from stratadesk.tui.widgets.phase_banner import TICK_S, elapsed, phase_mark
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.speed_figures import answer_speed, prompt_speed


class StatusLine(Section):
    """Phase, speed, context and RAM; what does not fit is left out from the end."""

    def on_mount(self) -> None:
        """Let the clock run."""
        self.set_interval(TICK_S, lambda: self.show(self.state))

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw one row."""
        word = clip(f"{phase_mark(state.phase)} {PHASE_WORDS[state.phase]}", width)
        room = width - len(word) - 2
        facts = fit(status_facts(state, time.monotonic()), room) if room > 0 else ""
        return Content.assemble((word, STRONG), ("  " + facts if facts else "", MUTED))


def status_facts(state: MonitorState, now: float) -> tuple[str, ...]:
    """Return the facts of the line, the most important first; empty ones are left out."""
    return (
        _progress(state),
        elapsed(state, now),
        _speed(state),
        f"ctx {short_count(state.context_used)}/{short_count(state.context_total)}"
        if state.context_total
        else "",
        f"RAM {gib(state.memory.resident)}" if state.memory else "",
        f"{gib(state.memory.available)} available" if state.memory else "",
    )


def _progress(state: MonitorState) -> str:
    if state.phase is Phase.PROMPT and state.prompt is not None:
        done = state.prompt.read + state.prompt.reused
        return f"{done / max(state.prompt.total, 1):.0%}"
    return ""


def _speed(state: MonitorState) -> str:
    if state.phase is Phase.PROMPT:
        return prompt_speed(state)
    return answer_speed(state) if state.phase in (Phase.DECODING, Phase.READY) else ""
