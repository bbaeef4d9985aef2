"""Whose every byte of the card is; the lines add up to the card, and a rest is a line too."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.invariants import InvariantError

CONTEXT, OTHERS = "graphs and context", "other programs"
"""Owners that only a driver tells of."""


@dataclass(frozen=True, slots=True)
class CardFigures:
    """What the card's driver says, in bytes.

    `others` is what other programs hold, None where no source tells. `outside` is what this
    process holds outside the arena, likewise: context, graphs, loaded kernels.
    """

    total: int
    free: int
    others: int | None
    outside: int | None = 0


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One owner of bytes on the card."""

    owner: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """All bytes of a card by owner, with the part of the free bytes that must stay free.

    `lines` do not contain the free bytes nor the unexplained ones. `others_known` tells whether
    the line of other programs comes from a source; if not, it takes what would be unexplained, if
    nothing else is among that. What no source tells has no line.
    """

    total: int
    free: int
    reserve: int
    lines: tuple[LedgerLine, ...]
    others_known: bool

    @property
    def unexplained(self) -> int:
        """Bytes that are neither free nor in a line; negative when lines claim too many."""
        return self.total - self.free - sum(line.n_bytes for line in self.lines)

    @property
    def shortfall(self) -> int:
        """How many bytes of the reserve are not free."""
        return max(0, self.reserve - self.free)

    def of(self, owner: str) -> int:
        """The bytes of `owner`, 0 when it has no line."""
        return sum(line.n_bytes for line in self.lines if line.owner == owner)

    def check(self, limit: int) -> None:
        """Check that the books balance.

        Raises:
            InvariantError: when a figure is negative, or more than `limit` bytes are unexplained;
                it names all lines.
        """
        negative = min((line.n_bytes for line in self.lines), default=0) < 0 or self.free < 0
        if negative or abs(self.unexplained) > limit:
            raise InvariantError(f"the ledger does not add up: {self}")

    def __str__(self) -> str:
        parts = [f"{line.owner} {line.n_bytes:,}" for line in self.lines]
        parts += [f"free {self.free:,}", f"unexplained {self.unexplained:,}"]
        return f"{' + '.join(parts)} = card {self.total:,} bytes"


def make_ledger(card: CardFigures, ours: Sequence[LedgerLine], reserve: int) -> Ledger:
    """Return the ledger of a card on which the arena is divided up as `ours` says."""
    lines, others = tuple(ours), card.others
    if card.outside is not None:
        lines = (*lines, LedgerLine(CONTEXT, card.outside))
        if others is None:
            others = max(0, card.total - card.free - sum(line.n_bytes for line in lines))
    if others is not None:
        lines = (*lines, LedgerLine(OTHERS, others))
    return Ledger(card.total, card.free, reserve, lines, card.others is not None)


def arena_lines(
    geometry: ArenaGeometry,
    end: int,
    slots: int,
    fixed_parts: Sequence[LedgerLine],
    *,
    head_lent: bool,
    lent_end: int,
) -> tuple[LedgerLine, ...]:
    """Divide up an arena of `end` bytes and `slots` slots; the lines add up to it.

    Without `fixed_parts` the fixed region is one line. `lent_end` is the byte behind the last
    one lent from the rows, `geometry.rows_start` when none is; lent slots count whole.
    """
    if not end:
        return ()
    parts = tuple(fixed_parts) or (LedgerLine("fixed", geometry.fixed_bytes),)
    slots_end = max(geometry.end_of(slots), lent_end)
    padding = end - slots_end + geometry.fixed_bytes - sum(part.n_bytes for part in parts)
    head = geometry.head.size
    buffers = lent_end - geometry.rows_start + (head if head_lent else 0)
    return (
        *parts,
        LedgerLine("head", 0 if head_lent else head),
        LedgerLine("experts", slots_end - lent_end),
        LedgerLine("prompt buffers", buffers),
        LedgerLine("padding", padding),
    )
