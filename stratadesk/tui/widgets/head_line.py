"""Where the output head is: in, lent to a prompt, or on its way back."""

from textual.content import Content

from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase
from stratadesk.tui.figures import NO_VALUE, fit, milliseconds
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import figure, row
from stratadesk.tui.widgets.section import Section

WORDS = {HeadPlace.IN: "in", HeadPlace.OUT: "OUT", HeadPlace.RETURNING: "RETURNING"}


class HeadLine(Section):
    """One row: the place, the size, and how long the way back took or last took."""

    watches = ("vram", "status")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the row; what has no room is left out from the end."""
        words = head_words(state.vram) if state.has_card else (NO_VALUE,)
        live = state.vram is not None and state.vram.head is not HeadPlace.IN
        return row("Head", figure(fit(words, width - 5), live=live), width)


def head_words(vram: VramPhase | None) -> tuple[str, ...]:
    """Say where the head is, how big, and how long its return took."""
    if vram is None:
        return (NO_VALUE,)
    if not vram.head_bytes:
        return ("never lent", "it is the embedding")
    size = f"{scale_of(vram.ledger.total).nearest(vram.head_bytes)} MiB"
    took = milliseconds(vram.return_s) if vram.return_s else ""
    after = {
        HeadPlace.IN: f"back in {took}",
        HeadPlace.OUT: f"back took {took}",
        HeadPlace.RETURNING: "",
    }
    lent = "lent to the prompt" if vram.head is HeadPlace.OUT else ""
    return (WORDS[vram.head], size, after[vram.head] if took else lent)
