"""What makes a screen into which text streams cheaper than Textual has it."""

from typing import TYPE_CHECKING

from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.reactive import Reactive
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.widget import Widget as Base
else:
    # Textual takes a widget's default styles from its first base that is a widget.
    Base = object


class Bare(Base):
    """A container without border or content: all its rows look alike.

    Textual draws each row of a container whose size has changed, under its children, and those
    that text streams into change all the time.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw one row and return it for each."""
        return super().render_lines(crop._replace(height=1)) * crop.height


class Stacked(Base):
    """A container as high as what is in it, of which nothing asks how high the container is.

    Textual arranges a container once to learn its height and once more at that height, on every
    level of a document, and keeps an arrangement for one height only. Here all are the same one:
    of a text that grows, what is complete is not arranged again.
    """

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Arrange what is inside, whatever the height."""
        return super().arrange(size.with_height(0), optimal)


class Kept(Base):
    """A widget that returns the lines it drew last as long as nothing has changed in it.

    Textual keeps a widget's lines, too, but works out all that their colours depend on before it
    looks for them: for each widget on screen, each time that a text moves up by a line.
    """

    _kept: tuple[Region, int, list[Strip]] | None = None
    """What was asked for last, how many lines Textual had kept then, and what was returned."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the part `crop` of the widget."""
        drawn = self._styles_cache
        if self._kept is not None and drawn._cache and not drawn._dirty_lines:
            before, count, strips = self._kept
            if before == crop and count == len(drawn._cache):
                return strips
        strips = super().render_lines(crop)
        self._kept = crop, len(drawn._cache), strips
        return strips

    def let_go(self) -> None:
        """Keep no lines for now: the widget is out of sight."""
        self._kept = None


class Remeasured(Kept):
    """A widget whose new size is no reason for a second layout.

    Textual lays the screen out twice whenever the size of anything in it has changed, in case a
    scrollbar comes or goes; but those that do ask for a layout themselves.
    """

    virtual_size = Reactive(Size(0, 0))
