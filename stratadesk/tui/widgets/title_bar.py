"""The top line: the program, the model, and how full the context is."""

from textual.content import Content

from stratadesk.tui.figures import clip, short_count, spread
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import MUTED
from stratadesk.tui.widgets.model_facts import DEVICES
from stratadesk.tui.widgets.section import Section

PROGRAM = "StrataDesk"
NAME = "bold $accent"


class TitleBar(Section):
    """One row that is there whatever the monitor's form."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the row."""
        context = _context(state)
        if len(PROGRAM) + len(context) + 2 > width:
            return Content.styled(clip(PROGRAM, width), NAME)
        room = width - len(PROGRAM) - 2
        return Content.assemble(
            (PROGRAM, NAME), "  ", (spread(_model(state), context, room), MUTED)
        )


def _context(state: MonitorState) -> str:
    if not state.context_total:
        return ""
    return f"ctx {short_count(state.context_used)} / {short_count(state.context_total)}"


def _model(state: MonitorState) -> str:
    if state.model is None:
        return ""
    return f"{safe_line(state.model.name)} · {DEVICES.get(state.model.device, state.model.device)}"
