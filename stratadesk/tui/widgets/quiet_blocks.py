"""Headings, tables, quotes and code blocks that need one layout where Textual's own need two."""

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widgets import Label, Markdown
from textual.widgets._markdown import (
    MarkdownBlockQuote,
)
from textual.widgets.markdown import MarkdownBlock

from stratadesk.tui.widgets.bare import Remeasured
from stratadesk.tui.widgets.drawn_table import DrawnTable

if TYPE_CHECKING:
    Text = MarkdownBlock
else:
    # A kind of block is named before this in the bases, and styled by its own name.
    Text = object


class Streamed(Remeasured, Text):
    """A block of text that has the screen laid out anew only when it needs another row."""

    _shape = (0, 0)
    """Columns and rows at the last change."""

    def set_content(self, content: Content) -> None:
        """Show `content` from now on."""
        width = self.content_size.width
        before, self._shape = self._shape, (width, content.get_height({}, width) if width else 0)
        self._content = content
        self.update(content, layout=self._shape != before)


class CodeLabel(Remeasured, Label):
    """The text of a code block."""


class QuietQuote(Remeasured, MarkdownBlockQuote):
    """A block quote."""


def _headings() -> dict[str, type[MarkdownBlock]]:
    levels = (f"h{level}" for level in range(1, 7))
    kinds = {level: Markdown.BLOCKS[level] for level in levels}
    return {level: type(kind.__name__, (Streamed, kind), {}) for level, kind in kinds.items()}


QUIET_BLOCKS: Final[dict[str, type[MarkdownBlock]]] = {
    "blockquote_open": QuietQuote,
    "table_open": DrawnTable,
    **_headings(),
}
