"""Who has the machine's RAM: this program, others, nobody."""

from dataclasses import dataclass

from textual.content import Content

from stratadesk.engine.events import MemorySample
from stratadesk.tui.figures import NO_VALUE, gib
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import FAINT, figure, lines, row
from stratadesk.tui.widgets.section import Section


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the RAM: a glyph, a name, bytes (None when unknown), a colour."""

    glyph: str
    name: str
    n_bytes: int | None
    color: str


class MemoryMeter(Section):
    """One stacked bar with a texture for each owner, and a legend that adds up."""

    watches = ("memory",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw five rows: the total, the bar, and a line for each owner."""
        total = gib(state.memory.total) if state.memory else NO_VALUE
        shares = memory_shares(state.memory)
        return lines(
            row("Memory", figure(total, live=False), width),
            _stack(shares, state.memory.total if state.memory else 0, width),
            *(_legend(share, width) for share in shares),
        )


def memory_shares(sample: MemorySample | None) -> tuple[Share, ...]:
    """Split the machine's RAM by owner; the three parts add up to the total."""
    own = others = free = None
    if sample is not None:
        own, free = sample.resident, sample.available
        others = max(sample.total - sample.available - sample.resident, 0)
    return (
        Share("█", "StrataDesk", own, "$primary"),
        Share("▒", "others", others, "$secondary"),
        Share("░", "available", free, FAINT),
    )


def _stack(shares: tuple[Share, ...], total: int, width: int) -> Content:
    own, others, _ = (round(width * (share.n_bytes or 0) / max(total, 1)) for share in shares)
    others = min(others, max(width - own, 0))
    cells = (own, others, max(width - own - others, 0))
    return Content.assemble(
        *((share.glyph * n, share.color) for share, n in zip(shares, cells, strict=True))
    )


def _legend(share: Share, width: int) -> Content:
    size = NO_VALUE if share.n_bytes is None else gib(share.n_bytes)
    return Content.assemble(
        (share.glyph + " ", share.color), row(share.name, figure(size), width - 2)
    )
