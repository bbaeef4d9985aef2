"""What the expert slots are in: holding, lent to a prompt, kept for those coming back."""

from collections.abc import Sequence

from textual.content import Content

from stratadesk.engine.card_events import CacheSample
from stratadesk.tui.figures import NO_VALUE, clip
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, STRONG, lines
from stratadesk.tui.widgets.section import Section

NAMES = ("slots", "holding", "lent", "reserved", "empty")
CELLS = (6, 9, 7, 10, 7)
SHORT_NAMES = ("slots", "hold", "lent", "rsvd")
SHORT_CELLS = (7, 6, 6, 6)


class SlotFigures(Section):
    """A small table whose columns stay where they are."""

    watches = ("cache",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw a row of names and a row of figures."""
        wide = width >= sum(CELLS)
        names, cells = (NAMES, CELLS) if wide else (SHORT_NAMES, SHORT_CELLS)
        return lines(
            Content.styled(_cells(names, cells, width), MUTED),
            Content.styled(_cells(slot_figures(state.cache), cells, width), STRONG),
        )


def slot_figures(cache: CacheSample | None) -> tuple[str, ...]:
    """Return the figures in the order of `NAMES`; slots being filled count as empty ones."""
    if cache is None:
        return (NO_VALUE,) * len(NAMES)
    counts = (
        cache.slots,
        cache.holding,
        cache.lent,
        cache.reserved,
        cache.empty + cache.filling,
    )
    return tuple(f"{count:,}" for count in counts)


def _cells(texts: Sequence[str], cells: Sequence[int], width: int) -> str:
    more = max(width - sum(cells), 0) // len(cells)
    joined = "".join(text.rjust(cell + more) for text, cell in zip(texts, cells, strict=False))
    return clip(joined, width)
