"""Markdown lists that grow at their end without being built anew.

Textual replaces the last block of a document whenever text is appended to it. For a list that
means every item with all its widgets, each time. Streamed text changes only the last item and
adds new ones, so only these are touched here.
"""

from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets._markdown import (
    Markdown,
    MarkdownBlock,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownListItem,
    MarkdownOrderedList,
    MarkdownParagraph,
)

from stratadesk.tui.widgets.bare import Bare, Remeasured, Stacked
from stratadesk.tui.widgets.folding import Folding


class ItemBullet(Remeasured, MarkdownBullet):
    """What stands before an item."""


class ItemBody(Bare, Remeasured, Stacked, Vertical):
    """The blocks of an item, one below the other."""


class ItemRow(Bare, Remeasured, Stacked, Horizontal):
    """A bullet or number, and the blocks of the item beside it."""

    def __init__(self, symbol: str, blocks: Sequence[Widget]) -> None:
        self.bullet = ItemBullet()
        self.bullet.symbol = symbol
        self.body = ItemBody(*blocks)
        super().__init__(self.bullet, self.body)

    def mark(self, symbol: str) -> None:
        """Show another bullet or number."""
        if self.bullet.symbol != symbol:
            self.bullet.symbol = symbol
            self.bullet.refresh(layout=True)

    async def grow(self, blocks: Sequence[MarkdownBlock]) -> None:
        """Become what `blocks` say, given that only the last block present can differ."""
        present = list(self.body.children)
        if len(blocks) < len(present):
            await self.body.remove_children()
            present = []
        if present:
            await _renew(self.body, present[-1], blocks[len(present) - 1])
        await self.body.mount_all(blocks[len(present) :])


class GrowingList(Bare, Remeasured, Stacked, MarkdownBlock):
    """What both kinds of list have in common; `symbols` numbers or marks the items.

    `folding` hides the items of a long list that are far off screen.
    """

    def __init__(self, markdown: Markdown, token: Token) -> None:
        super().__init__(markdown, token)
        self.folding = Folding(self, ItemRow)

    @property
    def rows(self) -> list[ItemRow]:
        """A row for each item."""
        return [child for child in self.children if isinstance(child, ItemRow)]

    def compose(self) -> ComposeResult:
        """Make a row for each item."""
        items = items_of(self)
        for symbol, item in zip(self.symbols(items), items, strict=True):
            yield ItemRow(symbol, item._blocks)
        self._blocks.clear()

    def symbols(self, items: Sequence[MarkdownListItem]) -> list[str]:
        """Return what stands before each item."""
        return [item.bullet for item in items]

    def can_become(self, block: Widget) -> bool:
        """Whether `block` is this list with more at its end."""
        return type(block) is type(self) and 0 < len(self.rows) <= len(items_of(block))

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not self.can_become(block):
            await super()._update_from_block(block)
            return
        self._copy_context(block)
        items = items_of(block)
        symbols = self.symbols(items)
        rows = self.rows
        for row, symbol in zip(rows, symbols, strict=False):
            row.mark(symbol)
        await rows[-1].grow(items[len(rows) - 1]._blocks)
        added = zip(symbols[len(rows) :], items[len(rows) :], strict=True)
        await self.mount_all([ItemRow(symbol, item._blocks) for symbol, item in added])


class GrowingBulletList(GrowingList, MarkdownBulletList):
    """A list with bullets."""


class GrowingOrderedList(GrowingList, MarkdownOrderedList):
    """A list with numbers, right-aligned to the longest."""

    def symbols(self, items: Sequence[MarkdownListItem]) -> list[str]:
        """Number the items from the first one's number on."""
        start = int(items[0].bullet) if items and items[0].bullet.isdecimal() else 1
        width = len(f" {start + len(items) - 1}. ")
        return [f"{number}. ".rjust(width) for number in range(start, start + len(items))]


GROWING_LISTS: Final[dict[str, type[MarkdownBlock]]] = {
    "bullet_list_open": GrowingBulletList,
    "ordered_list_open": GrowingOrderedList,
}


def items_of(block: Widget) -> list[MarkdownListItem]:
    """Return the items of a list that is not mounted yet."""
    blocks = block._blocks if isinstance(block, MarkdownBlock) else []
    return [item for item in blocks if isinstance(item, MarkdownListItem)]


async def _renew(parent: Widget, old: Widget, new: MarkdownBlock) -> None:
    if _grows_in_place(old, new) and isinstance(old, MarkdownBlock):
        await old._update_from_block(new)
    else:
        await parent.mount(new, after=old)
        await old.remove()


def _grows_in_place(old: Widget, new: MarkdownBlock) -> bool:
    if isinstance(old, GrowingList):
        return old.can_become(new)
    return type(old) is type(new) and isinstance(old, MarkdownParagraph | MarkdownFence)
