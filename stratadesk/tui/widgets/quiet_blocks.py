"""Headings, tables, quotes and code blocks that need one layout where Textual's own need two."""

from collections.abc import Iterable
from typing import Final

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Label, Markdown
from textual.widgets._markdown import (
    MarkdownBlockQuote,
    MarkdownTable,
    MarkdownTableCellContents,
    MarkdownTableContent,
)
from textual.widgets.markdown import MarkdownBlock

from stratadesk.tui.widgets.bare import Remeasured


class CodeLabel(Remeasured, Label):
    """The text of a code block."""


class QuietQuote(Remeasured, MarkdownBlockQuote):
    """A block quote."""


class Cell(Remeasured, MarkdownTableCellContents):
    """A cell of a table."""


class TableCells(Remeasured, MarkdownTableContent):
    """The cells of a table, which gets more rows while it is written."""

    def compose(self) -> ComposeResult:
        """Make the cells, those of the head first."""
        yield from (Cell(header, classes="header") for header in self.headers)
        yield from self._cells(self.rows, 1)
        self.last_row = len(self.rows)

    async def _update_rows(self, updated_rows: list[list[Content]]) -> None:
        """Replace the last row by `updated_rows`, the first of which is its new form."""
        self.styles.grid_size_columns = len(self.headers)
        await self.query_children(f".row{self.last_row}").remove()
        await self.mount_all(self._cells(updated_rows, self.last_row))
        self.last_row += len(updated_rows) - 1

    def _cells(self, rows: list[list[Content]], first: int) -> Iterable[Cell]:
        return [
            Cell(cell, classes=f"row{number} cell")
            for number, row in enumerate(rows, first)
            for cell in row
        ]


class QuietTable(Remeasured, MarkdownTable):
    """A table."""

    def compose(self) -> ComposeResult:
        """Make the cells."""
        self._headers, self._rows = self._get_headers_and_rows()
        yield TableCells(self._headers, self._rows)


def _headings() -> dict[str, type[MarkdownBlock]]:
    levels = (f"h{level}" for level in range(1, 7))
    kinds = {level: Markdown.BLOCKS[level] for level in levels}
    return {level: type(kind.__name__, (Remeasured, kind), {}) for level, kind in kinds.items()}


QUIET_BLOCKS: Final[dict[str, type[MarkdownBlock]]] = {
    "blockquote_open": QuietQuote,
    "table_open": QuietTable,
    **_headings(),
}
