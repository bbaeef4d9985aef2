"""A line of points drawn with braille cells, two columns and four rows of dots each."""

from collections.abc import Sequence

_FIRST = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot, by row from the top and by column."""


class BrailleGrid:
    """`width` x `height` cells; dots are addressed from the lower left corner."""

    def __init__(self, width: int, height: int) -> None:
        self._cells = [[0] * width for _ in range(height)]
        self.columns = 2 * width
        self.rows = 4 * height

    def dot(self, x: int, y: int) -> None:
        """Set a dot; one outside of the grid is left out."""
        if not (0 <= x < self.columns and 0 <= y < self.rows):
            return
        row, dot_row = divmod(self.rows - 1 - y, 4)
        column, dot_column = divmod(x, 2)
        self._cells[row][column] |= _DOTS[dot_row][dot_column]

    def curve(self, heights: Sequence[int | None]) -> None:
        """Draw a curve, a height for each column of dots from the left; None leaves a gap."""
        before: int | None = None
        for x, y in enumerate(heights):
            if y is not None:
                start = y if before is None else before
                for step in range(min(start, y), max(start, y) + 1):
                    self.dot(x, step)
            before = y

    def lines(self) -> list[str]:
        """Return the rows of cells, the top one first."""
        return ["".join(chr(_FIRST + bits) for bits in row) for row in self._cells]
