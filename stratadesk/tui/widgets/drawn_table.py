"""A table of a document, drawn as one piece.

Textual's own is a grid with a widget for each cell: a table of four rows costs as much as four
paragraphs each, and what a narrow column has no room for is left out. Here words are folded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markdown_it.token import Token
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownTable, MarkdownTD, MarkdownTH, MarkdownTR
from textual.widgets.markdown import MarkdownBlock

from stratadesk.tui.widgets.bare import Remeasured

LINE, HEAD = "$foreground 20%", "$primary"
PADDING = 2
"""The blank on either side of what stands in a cell."""
LEAST = 1 + PADDING
"""Cells of the narrowest column."""
RIGHT_ALIGNED = "text-align:right"


@dataclass(frozen=True, slots=True)
class Grid:
    """What stands in a table: rows of cells, the head first, and which columns are of figures."""

    rows: tuple[tuple[Content, ...], ...] = ()
    right: tuple[bool, ...] = ()

    def picture(self, width: int) -> Content:
        """Draw the table `width` cells wide, ruled, the head in its own colour."""
        columns = [[row[column] for row in self.rows] for column in range(len(self.right))]
        widths = column_widths(
            [PADDING + max(cell.cell_length for cell in column) for column in columns],
            [PADDING + max(_longest_word(cell) for cell in column) for column in columns],
            width - len(columns) - 1,
        )
        parts: list[Content] = []
        for number, row in enumerate(self.rows):
            parts.append(_ruler(widths, "├┼┤" if number else "┌┬┐"))
            parts += self._lines_of(row, widths, head=number == 0)
        parts.append(_ruler(widths, "└┴┘"))
        return Content("\n").join(parts)

    def _lines_of(
        self, row: Sequence[Content], widths: Sequence[int], *, head: bool
    ) -> list[Content]:
        cells = [_wrapped(cell, room - PADDING) for cell, room in zip(row, widths, strict=True)]
        height = max(map(len, cells))
        rule = Content.styled("│", LINE)
        lines = []
        for y in range(height):
            line = [rule]
            for cell, room, right in zip(cells, widths, self.right, strict=True):
                # A name stands right above its column, what is in the column begins at the top.
                at = y - (height - len(cell)) if head else y
                text = cell[at] if 0 <= at < len(cell) else Content()
                styled = text.stylize_before(HEAD) if head else text
                line += [_padded(styled, room, right=right), rule]
            lines.append(Content.assemble(*line))
        return lines


class DrawnTable(Remeasured, MarkdownTable):
    """A table, which gets more rows while it is written."""

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)
        self._grid = Grid()
        self._drawn = 0, Content()

    def compose(self) -> ComposeResult:
        """Take over what was read; there is nothing inside."""
        self._grid = grid_of(self)
        yield from ()

    def render(self) -> Content:
        """Draw the table as wide as it is."""
        return self._picture(self.content_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many rows of the screen it takes."""
        return _height(self._picture(width))

    def _picture(self, width: int) -> Content:
        grid = self._grid or grid_of(self)
        if not grid.rows or not width:
            return Content()
        if self._drawn[0] != width:
            self._drawn = width, grid.picture(width)
        return self._drawn[1]

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        """Become what `block` says; it is no widget on screen yet."""
        if not isinstance(block, DrawnTable):
            await super()._update_from_block(block)
            return
        self._copy_context(block)
        width, before = self._drawn
        self._grid, self._drawn = grid_of(block), (0, Content())
        self.refresh(layout=_height(before) != _height(self._picture(width)))


def grid_of(table: MarkdownBlock) -> Grid:
    """Read a table's cells out of the blocks that were parsed; short rows are filled up."""
    rows: list[list[Content]] = [[]]
    right: list[bool] = []
    for block in _flat(table):
        if isinstance(block, MarkdownTH):
            rows[0].append(block._content)
            right.append(block._token.attrs.get("style") == RIGHT_ALIGNED)
        elif isinstance(block, MarkdownTR):
            rows.append([])
        elif isinstance(block, MarkdownTD):
            rows[-1].append(block._content)
    filled = ([*row, *[Content()] * len(right)][: len(right)] for row in rows if row)
    return Grid(tuple(map(tuple, filled)), tuple(right))


def column_widths(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Share `room` cells among columns that want so many each, and `least` so that no word breaks.

    Room to spare is shared in proportion. If there is too little, a column that wants no more
    than an equal share gets what it wants, and the others share the rest.

    >>> column_widths([10, 30], [5, 5], 60), column_widths([6, 40, 80], [6, 9, 30], 60)
    ([15, 45], [6, 16, 38])
    """
    if sum(wanted) <= room:
        ends = [end * room // sum(wanted) for end in accumulate(wanted, initial=0)]
        return [end - start for start, end in pairwise(ends)]
    if sum(least) > room:
        least = [LEAST] * len(wanted)
    more = [want - floor for want, floor in zip(wanted, least, strict=True)]
    left = max(room - sum(least), 0)
    widths = list(least)
    for place, column in enumerate(sorted(range(len(more)), key=more.__getitem__)):
        given = min(more[column], left // (len(more) - place))
        widths[column] += given
        left -= given
    return widths


def _flat(block: MarkdownBlock) -> Iterable[MarkdownBlock]:
    for child in block._blocks:
        yield child
        yield from _flat(child)


def _ruler(widths: Sequence[int], corners: str) -> Content:
    lines = corners[1].join("─" * width for width in widths)
    return Content.styled(f"{corners[0]}{lines}{corners[2]}", LINE)


def _wrapped(cell: Content, room: int) -> list[Content]:
    return cell.wrap(max(room, 1)) if cell else [Content()]


def _padded(text: Content, room: int, *, right: bool) -> Content:
    """Put a line of a cell into `room` cells with a blank on either side."""
    spare = max(room - PADDING - text.cell_length, 0)
    left, behind = (spare, 0) if right else (0, spare)
    return text.pad_left(1 + left).pad_right(1 + behind)


def _longest_word(cell: Content) -> int:
    return max(map(cell_len, cell.plain.split()), default=1)


def _height(picture: Content) -> int:
    return picture.plain.count("\n") + 1
