"""The top line: the program, the model, where it runs, and how full the context is."""

from textual.content import Content

from stratadesk.tui.figures import clip, fit, short_count, spread
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import MUTED
from stratadesk.tui.widgets.model_facts import DEVICES
from stratadesk.tui.widgets.section import Section

PROGRAM = "StrataDesk"
NAME = "bold $accent"
CONTEXT_CELLS = 5
"""Cells kept for the tokens in use, so that what is beside them holds still."""


class TitleBar(Section):
    """One row that is there whatever the monitor's form."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the row; figures of a recording are marked as such before anything else."""
        head = f"{PROGRAM}  {state.provenance.label}" if state.provenance else PROGRAM
        context = _context(state)
        if len(head) + len(context) + 2 > width:
            return Content.styled(clip(head, width), NAME)
        room = width - len(head) - 2
        facts = fit(title_facts(state), room - len(context) - 1) if state.model else ""
        return Content.assemble((head, NAME), "  ", (spread(facts, context, room), MUTED))


def title_facts(state: MonitorState) -> tuple[str, ...]:
    """Name the model, what computes, the card, and what it runs on."""
    model = state.model
    return (
        safe_line(state.provenance.words) if state.provenance else "",
        safe_line(model.name) if model else "",
        DEVICES.get(model.device, model.device) if model else "",
        _card(state),
        _power(state),
    )


def _card(state: MonitorState) -> str:
    reading = state.status.reading if state.status else None
    if reading is None or state.ledger is None:
        return ""
    size = f"{scale_of(state.ledger.total).text(state.ledger.total)} MiB"
    first = reading.figures[0].source if reading.figures else ""
    kind = "simulated card of " if "simulated" in first else "card of "
    return f"{kind}{size} · {reading.driver_model.words}"


def _power(state: MonitorState) -> str:
    if state.power is None or state.power.on_battery is None:
        return ""
    return "on battery" if state.power.on_battery else "on mains"


def _context(state: MonitorState) -> str:
    if not state.context_total:
        return ""
    total = short_count(state.context_total)
    return f"ctx {short_count(state.context_used):>{CONTEXT_CELLS}} / {total}"
