"""A screen that is laid out once for all that a piece of streamed text has changed."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual._compositor import Compositor, ReflowResult
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.screen import Screen

    Base = Screen[None]
else:
    # Textual takes a screen's default styles from its first base that is a widget.
    Base = object

SETTLE_S = 0.05
"""How long parts may go on being added before they are all laid out together."""


class SettledCompositor(Compositor):
    """Knows after a layout that its map is complete.

    Textual's own takes it for outdated whenever the layout brought new widgets, and arranges the
    whole screen a second time as soon as anyone asks where a widget is.
    """

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lay out `parent` and what is in it."""
        result = super().reflow(parent, size)
        self._full_map_invalidated = False
        return result

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Draw the widgets of which something lies in `crop`; their regions, clips and lines.

        Textual's own draws all that are scrolled in the same view, too.
        """
        for widget, (region, clip) in self.visible_widgets.items():
            shown = region.intersection(clip)
            if shown and (crop is None or crop.overlaps(shown)):
                yield region, clip, widget.render_lines(shown.translate(-region.offset))


class Settling(Base):
    """While it `streams`, a layout waits for `SETTLE_S`, and what else has changed with it.

    Code blocks, lists and tables come with parts that are added one after the other, and each of
    them would have the whole screen laid out anew. Meanwhile only the widget that has the focus
    is drawn: a key waits for nobody.
    """

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SettledCompositor()
        self._wanted_at: float | None = None

    @property
    def streams(self) -> bool:
        """Whether text is being added all the time."""
        return False

    def lay_out(self) -> None:
        """Lay out at once what has changed; within a batch nothing of it is drawn yet."""
        self._refresh_layout()
        self._layout_required = False

    def _on_timer_update(self) -> None:
        if self._layout_required and self.streams and self._settles():
            self._draw_focused()
        else:
            self._wanted_at = None
            super()._on_timer_update()

    def _draw_focused(self) -> None:
        typed = {widget for widget in self._dirty_widgets if widget is self.focused}
        if typed and typed <= self._compositor.visible_widgets.keys():
            others = self._dirty_widgets - typed
            self._compositor.update_widgets(typed)
            self._compositor_refresh()
            # Drawing takes all that was dirty for drawn.
            self._dirty_widgets |= others

    def _settles(self) -> bool:
        """Whether the layout was first wanted so lately that more may come."""
        now = time.monotonic()
        if self._wanted_at is None:
            self._wanted_at = now
        return now - self._wanted_at < SETTLE_S
