"""Widgets that are one drawing made for their width, and the styles and rows they share."""

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from stratadesk.tui.figures import clip
from stratadesk.tui.widgets.bare import Kept

MUTED = "$foreground 62%"
FAINT = "$foreground 38%"
TRACK = "$foreground 18%"
STRONG = "bold $foreground"


class Drawing(Kept, Widget):
    """Repaints only when the drawing comes out different, lays out only when its height does.

    Subclasses define `picture`. No row may be wider than the width asked for.
    """

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._shown = Content()
        self._width = 0

    def picture(self, width: int) -> Content:
        """Return the drawing, `width` cells wide."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw anew what has changed; nothing is done for a widget that is not on screen."""
        if not (self._width and self.display):
            return
        picture = self.picture(self._width)
        if not picture.is_same(self._shown):
            self.refresh(layout=_height(picture) != _height(self._shown))

    def render(self) -> Content:
        """Draw at the present width."""
        self._width = self.size.width
        self._shown = self.picture(self._width)
        return self._shown

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows at `width` cells."""
        return _height(self.picture(width))


def row(label: str, figure: Content, width: int) -> Content:
    """Put a muted `label` and a `figure` at the two ends of `width` cells; the label gives way."""
    if figure.cell_length > width:
        return Content(clip(figure.plain, width))
    label = clip(label, max(width - figure.cell_length - 1, 0))
    gap = " " * max(width - cell_len(label) - figure.cell_length, 0)
    return Content.assemble((label, MUTED), gap, figure)


def figure(text: str, *, live: bool = True) -> Content:
    """Write a figure, dimmed when it is not of the present."""
    return Content.styled(text, STRONG if live else MUTED)


def lines(*rows: Content) -> Content:
    """Stack rows."""
    return Content("\n").join(rows)


def _height(picture: Content) -> int:
    return picture.plain.count("\n") + 1
