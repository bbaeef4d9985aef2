"""What makes a screen into which text streams cheaper than Textual has it."""

from typing import TYPE_CHECKING

from textual.geometry import Region, Size
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


class Remeasured(Base):
    """A widget whose new size is no reason for a second layout.

    Textual lays the screen out twice whenever the size of anything in it has changed, in case a
    scrollbar comes or goes; but those that do ask for a layout themselves.
    """

    virtual_size = Reactive(Size(0, 0))
