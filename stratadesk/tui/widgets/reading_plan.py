"""How the prompt is read: layout, chunk, and why."""

import textwrap

from textual.content import Content

from stratadesk.engine.events import Phase, PromptPlanned
from stratadesk.tui.figures import NO_VALUE, clip
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, figure, lines, row
from stratadesk.tui.widgets.section import Section

WHY_ROWS = 3


class ReadingPlan(Section):
    """Layout and chunk in use, or those of the last prompt, dimmed; what the next one goes by."""

    watches = ("phase", "planned", "settings")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw one row."""
        label, live = "Layout", state.phase is Phase.PROMPT
        if state.settings is not None and state.settings.alias_waits:
            label = f"Layout · next prompt {state.settings.alias_next}"
        words = _words(state.planned, width - len(label) - 1)
        return row(label, figure(words, live=live), width)


class PlanReason(Section):
    """Why the prompt is read that way, in the planner's words."""

    watches = ("planned",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw three rows."""
        return lines(*(Content.styled(text, MUTED) for text in _why(state.planned, width)))


def _words(planned: PromptPlanned | None, width: int) -> str:
    if planned is None:
        return NO_VALUE
    way = planned.layout or "decode windows"
    words = f"{way} · chunk {planned.chunk:,}"
    return words if len(words) <= width else f"{way} · {planned.chunk:,}"


def _why(planned: PromptPlanned | None, width: int) -> list[str]:
    why = planned.why if planned else ""
    rows = textwrap.wrap(f"because {why}", width) if why else []
    if len(rows) > WHY_ROWS:
        rows = [*rows[: WHY_ROWS - 1], clip(" ".join(rows[WHY_ROWS - 1 :]), width)]
    return rows + [" "] * (WHY_ROWS - len(rows))
