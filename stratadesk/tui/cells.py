"""Sharing out the cells of a row: bars of several owners, and spans of time."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

LEAST = 1e-9
"""A whole that is shorter has no parts to speak of."""
VISIBLE = 0.25
"""A part of at least this many cells gets one of its own."""


def share_cells(parts: Sequence[float], width: int) -> list[int]:
    """Return how many of `width` cells each of `parts` gets; all cells if any part is not 0.

    Parts too small for a cell of their own still get one, taken from the largest, as long as
    they would fill a quarter of it. Negative parts get none.
    """
    wanted = [max(part, 0.0) for part in parts]
    whole = sum(wanted)
    if whole <= 0 or width <= 0:
        return [0] * len(parts)
    exact = [part * width / whole for part in wanted]
    edges = [round(edge) for edge in accumulate(exact, initial=0.0)]
    cells = [end - start for start, end in pairwise(edges)]
    for i, size in enumerate(exact):
        largest = max(range(len(cells)), key=cells.__getitem__)
        if cells[i] == 0 and size >= VISIBLE and cells[largest] > 1:
            cells[i], cells[largest] = 1, cells[largest] - 1
    return cells


def span_cells(start: float, end: float, whole: float, width: int) -> tuple[int, int]:
    """Return the cells from which to which a span of `whole` reaches; at least one cell.

    >>> span_cells(0.0, 1.0, 4.0, 40), span_cells(1.0, 1.001, 4.0, 40)
    ((0, 10), (10, 11))
    """
    scale = width / whole if whole > LEAST else 0.0
    first = min(max(round(start * scale), 0), max(width - 1, 0))
    return first, min(max(round(end * scale), first + 1), width)
