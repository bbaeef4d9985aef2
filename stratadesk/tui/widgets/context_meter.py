"""How full the context is."""

from textual.content import Content

from stratadesk.tui.figures import NO_VALUE, bar
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, TRACK, figure, lines, row
from stratadesk.tui.widgets.section import Section

NEARLY_FULL = 0.9


class ContextMeter(Section):
    """Tokens held against tokens that fit, with a bar."""

    watches = ("context_used", "context_total")

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw two rows: the two counts, and the bar with its share."""
        total = state.context_total
        share = state.context_used / total if total else 0.0
        filled, rest = bar(share, width - 5)
        color = "$warning" if share >= NEARLY_FULL else "$accent"
        return lines(
            _counts(state, share, width),
            Content.assemble((filled, color), (rest, TRACK), (f" {share:4.0%}", MUTED)),
        )


def _counts(state: MonitorState, share: float, width: int) -> Content:
    if not state.context_total:
        return row("Context", figure(NO_VALUE, live=False), width)
    label = "Context, nearly full" if share >= NEARLY_FULL else "Context"
    total = Content.styled(f" / {state.context_total:,}", MUTED)
    return row(label, figure(f"{state.context_used:,}") + total, width)
