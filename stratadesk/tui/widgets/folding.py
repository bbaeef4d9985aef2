"""Keeps what is far off screen out of the layout.

Every change of a line's height has Textual arrange all widgets of the screen anew, so a long
answer would slow down with each word. The blocks of a document that lie further away than some
screens are hidden, and spacers of just their height stand in for them: nothing on screen moves,
and the document is as long as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.dom import NoScreen
from textual.errors import NoWidget
from textual.geometry import Region
from textual.widget import Widget

from stratadesk.tui.widgets.bare import Kept, Remeasured

FOLD_FROM = 8
"""Blocks that are hidden at once at least: each time costs a layout."""
SHOWN_SCREENS, KEPT_SCREENS = 0.1, 0.35
"""Screens above and below the view within which blocks are brought back, and not yet hidden."""


class Spacer(Remeasured, Widget, can_focus=False):
    """Stands in for hidden blocks; as high as told, and empty."""

    DEFAULT_CSS = "Spacer { width: 1; height: 0; }"
    ALLOW_SELECT = False

    def stand_for(self, rows: int) -> None:
        """Be so many rows high."""
        self.display = rows > 0
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = rows

    def render(self) -> str:
        """Draw nothing."""
        return ""


@dataclass(frozen=True, slots=True)
class Window:
    """The rows on screen, counted in a container's own rows."""

    top: int
    bottom: int

    def reach(self, place: Region, screens: float) -> bool:
        """Whether `place` is no further away than so many screens."""
        margin = screens * (self.bottom - self.top)
        return place.y < self.bottom + margin and place.bottom > self.top - margin

    def within(self, place: Region) -> "Window":
        """Return the same window in the rows of a child at `place`."""
        return Window(self.top - place.y, self.bottom - place.y)


class Folding:
    """Hides and shows the children of `container` that are of the kind `block`.

    They must be stacked with nothing but their margins between, and only the last may change.
    """

    def __init__(self, container: Widget, block: type[Widget]) -> None:
        self._container = container
        self._block = block
        self._places: dict[Widget, Region] = {}
        self._last: tuple[Widget, Region] | None = None
        self._above, self._below = Spacer(), Spacer()

    @property
    def blocks(self) -> list[Widget]:
        """All blocks, hidden ones among them."""
        return [child for child in self._container.children if isinstance(child, self._block)]

    def place_of(self, block: Widget) -> Region | None:
        """Return where a block lies in the container, None when that is not known."""
        if self._last is not None and self._last[0] is block:
            return self._last[1]
        return self._places.get(block)

    def forget(self) -> None:
        """Show everything, to be measured anew: the width has changed."""
        self._places.clear()
        self._last = None
        for block in self.blocks:
            _display(block, shown=True)
        for spacer in (self._above, self._below):
            spacer.stand_for(0)

    def measure(self) -> None:
        """Note where the blocks lie that have just been laid out."""
        *complete, last = self.blocks or [self._container]
        for block in complete:
            if block not in self._places and (place := _place(block)) is not None:
                self._places[block] = place
        place = _place(last)
        self._last = None if place is None else (last, place)

    def adjust(self, window: Window, *, hide: bool = True) -> None:
        """Show what is near the window; hide what is far, unless `hide` is unset."""
        blocks = self.blocks
        if len(blocks) <= FOLD_FROM or any(self.place_of(block) is None for block in blocks):
            return
        near = [at for at, block in enumerate(blocks[:-1]) if self._stays(block, window)]
        first, last = (near[0], near[-1]) if near else (len(blocks) - 1, len(blocks) - 2)
        shown = [first <= at <= last for at in range(len(blocks) - 1)] + [True]
        pairs = list(zip(blocks, shown, strict=True))
        missing = any(stays and not block.display for block, stays in pairs)
        far = sum(block.display and not stays for block, stays in pairs)
        if (missing or (hide and far >= FOLD_FROM)) and self._spacers_ready():
            for block, stays in pairs:
                _display(block, shown=stays)
            self._stand_in(blocks, first, last)

    def _stays(self, block: Widget, window: Window) -> bool:
        screens = KEPT_SCREENS if block.display else SHOWN_SCREENS
        return window.reach(self._places[block], screens)

    def _spacers_ready(self) -> bool:
        """Whether the spacers are in the layout; if not, have them be there for the next one."""
        if self._above.parent is None:
            self._container.mount(self._above, self._below, before=0)
        return self._above.is_mounted and self._below.is_mounted

    def _stand_in(self, blocks: Sequence[Widget], first: int, last: int) -> None:
        """Let the spacers be as high as what is hidden before `first` and behind `last`."""
        self._above.stand_for(self._start_of(blocks[first]))
        end = self._places[blocks[last]].bottom + blocks[last].styles.margin.bottom
        gap = first <= last < len(blocks) - 2
        self._below.stand_for(self._start_of(blocks[-1]) - end if gap else 0)
        self._container.move_child(self._below, before=blocks[-1])

    def _start_of(self, block: Widget) -> int:
        place = self.place_of(block)
        return place.y - block.styles.margin.top if place is not None else 0


def _display(widget: Widget, *, shown: bool) -> None:
    if widget.display is shown:
        return
    widget.display = shown
    if not shown:
        for node in widget.walk_children(Widget, with_self=True):
            # The lines drawn so far are thousands of objects, and are drawn anew when shown.
            node._styles_cache.clear()
            if isinstance(node, Kept):
                node.let_go()


def _place(widget: Widget) -> Region | None:
    """Where the layout has put a widget in its container; None when it is in none."""
    try:
        return widget.screen.find_widget(widget).virtual_region
    except (NoWidget, NoScreen):
        return None
