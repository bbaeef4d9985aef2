"""Where things lie in the arena: `fixed | head | row 0 | row 1 | …`, in bytes from its start.

A row holds one expert slot of every mixture-of-experts layer, each of that layer's own size.
Slots are numbered row by row: slot s is (row s // layers, layer s % layers), and a higher number
lies at a higher offset. The last row may be partial. Pure arithmetic.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

ALIGNMENT = 256
"""Every region and slot begins at a multiple of this many bytes."""


def aligned(n_bytes: int) -> int:
    """Round up to `ALIGNMENT`."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from `start` up to and without `end`, counted from the arena's start."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start

    def overlaps(self, other: "Span") -> bool:
        """Whether any byte belongs to both."""
        return self.start < other.end and other.start < self.end


class ArenaGeometry:
    """Offsets of head, rows and slots behind `fixed_bytes` bytes that no phase lends.

    `head_bytes` is 0 when the head is not lent (a tied head is the embedding). `slot_bytes`
    gives one expert's size per mixture-of-experts layer; it is empty for a dense model.
    """

    def __init__(self, fixed_bytes: int, head_bytes: int, slot_bytes: Sequence[int]) -> None:
        self.fixed_bytes = aligned(fixed_bytes)
        self.head = Span(self.fixed_bytes, self.fixed_bytes + aligned(head_bytes))
        self.slot_bytes = tuple(aligned(size) for size in slot_bytes)
        ends = tuple(accumulate(self.slot_bytes))
        self._starts = (0, *ends[:-1]) if ends else ()
        self._ends = ends
        self.row_bytes = ends[-1] if ends else 0

    @property
    def layers(self) -> int:
        """Number of mixture-of-experts layers."""
        return len(self.slot_bytes)

    @property
    def rows_start(self) -> int:
        """Offset of row 0, the byte behind the head."""
        return self.head.end

    def slot(self, number: int) -> Span:
        """Where slot `number` lies."""
        row, layer = divmod(number, self.layers)
        start = self.rows_start + row * self.row_bytes + self._starts[layer]
        return Span(start, start + self.slot_bytes[layer])

    def layer_of(self, number: int) -> int:
        """The layer, counted among those with experts, that slot `number` serves."""
        return number % self.layers

    def slots_within(self, end: int) -> int:
        """How many slots lie wholly before offset `end`."""
        rows, rest = self._rows(end)
        return rows * self.layers + bisect_right(self._ends, rest)

    def slots_touched(self, end: int) -> int:
        """How many slots have a byte before offset `end`; those a loan up to there takes."""
        rows, rest = self._rows(end)
        return rows * self.layers + bisect_left(self._starts, rest)

    def end_of(self, slots: int) -> int:
        """The first offset behind `slots` slots."""
        return self.slot(slots - 1).end if slots else self.rows_start

    def _rows(self, end: int) -> tuple[int, int]:
        """Whole rows before `end`, and the bytes of it in the next one."""
        return divmod(max(0, end - self.rows_start), self.row_bytes) if self.layers else (0, 0)
