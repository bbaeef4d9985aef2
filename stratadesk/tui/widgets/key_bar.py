"""The bottom line: keys, what they do, and the values they change."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content

from stratadesk.keys import find_key
from stratadesk.tui.widgets.drawing import MUTED, Drawing

GAP = "  "


@dataclass(frozen=True, slots=True)
class KeyItem:
    """A key to show: its id, the action a click runs, its present value, its weight.

    `typed` stands in for the caption where any of many keys will do ("A-Z"). `pair` is the id of a
    second key of the same kind, shown with the first. `says` stands in for the table's label where
    a key means something special.

    Where there is no room for all, items of the least `weight` go first. `idle` items would do
    nothing at present: their place is kept, but they are not drawn.
    """

    key_id: str
    action: str
    value: str = ""
    weight: int = 0
    idle: bool = False
    says: str = ""
    pair: str = ""
    typed: str = ""

    @property
    def caption(self) -> str:
        """The key as written on keyboards."""
        keys = filter(None, (self.key_id, self.pair))
        return self.typed or "/".join(find_key(key_id).caption for key_id in keys)

    @property
    def label(self) -> str:
        """What the key does, with the present value."""
        label = self.says or find_key(self.key_id).label
        return f"{label} {self.value}".rstrip()

    @property
    def width(self) -> int:
        """Cells it takes, the gap after it included."""
        return cell_len(self.caption) + 1 + cell_len(self.label) + len(GAP)


class KeyBar(Drawing):
    """One row; a click runs the key's action."""

    def __init__(self, items: Sequence[KeyItem] = ()) -> None:
        super().__init__()
        self._items = tuple(items)

    def show(self, items: Sequence[KeyItem]) -> None:
        """Show these keys from now on."""
        self._items = tuple(items)
        self.redraw()

    def picture(self, width: int) -> Content:
        """Draw the keys that fit."""
        return Content(GAP).join(map(_draw, fitting(self._items, width)))

    async def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        end = 0
        for item in fitting(self._items, self.size.width):
            end += item.width
            if offset.x < end:
                if not item.idle:
                    await self.run_action(item.action)
                return


def fitting(items: Sequence[KeyItem], width: int) -> list[KeyItem]:
    """Return the items that fit into `width` cells, in order, the weightiest first to stay."""
    kept = list(items)
    while kept and sum(item.width for item in kept) - len(GAP) > width:
        kept.remove(min(reversed(kept), key=lambda item: item.weight))
    return kept


def _draw(item: KeyItem) -> Content:
    if item.idle:
        return Content(" " * (item.width - len(GAP)))
    return Content.assemble((item.caption, "bold $accent"), " ", (item.label, MUTED))
