"""Where the output head is: in, lent to a prompt, or on its way back."""

from textual.content import Content

from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase
from stratadesk.tui.figures import NO_VALUE, fit, milliseconds
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.request_trace import RequestTrace
from stratadesk.tui.widgets.drawing import figure, row
from stratadesk.tui.widgets.section import Section

WORDS = {HeadPlace.IN: "in", HeadPlace.OUT: "OUT", HeadPlace.RETURNING: "RETURNING"}


class HeadLine(Section):
    """One row: the place, the last loan and the way back, and the size.

    A loan may be over before the screen changes: the row tells of it until the next prompt.
    """

    watches = ("vram", "status", "trace")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the row; what has no room is left out from the end."""
        words = head_words(state.vram, state.trace) if state.has_card else (NO_VALUE,)
        live = state.vram is not None and state.vram.head is not HeadPlace.IN
        return row("Head", figure(fit(words, width - 5), live=live), width)


def head_words(vram: VramPhase | None, trace: RequestTrace | None = None) -> tuple[str, ...]:
    """Say where the head is, how long it was out and its return took, and how big it is."""
    if vram is None:
        return (NO_VALUE,)
    if not vram.head_bytes:
        return ("never lent", "it is the embedding")
    size = f"{scale_of(vram.ledger.total).nearest(vram.head_bytes)} MiB"
    took = milliseconds(vram.return_s) if vram.return_s else ""
    loan = last_loan(trace)
    if loan and vram.head is HeadPlace.IN:
        return (WORDS[vram.head], loan, f"back {took}" if took else "", size)
    after = {
        HeadPlace.IN: f"back in {took}",
        HeadPlace.OUT: f"back took {took}",
        HeadPlace.RETURNING: "",
    }
    lent = "lent to the prompt" if vram.head is HeadPlace.OUT else ""
    return (WORDS[vram.head], size, after[vram.head] if took else lent)


def last_loan(trace: RequestTrace | None) -> str:
    """Say how long a prompt had the head's bytes, once they are back; nothing if it had not."""
    took = trace.lent_s if trace and trace.head_out else None
    return f"was {WORDS[HeadPlace.OUT]} {milliseconds(took)}" if took is not None else ""
