"""What a key will change, and what it has changed, in the place of the keys for a moment."""

from textual.content import Content

from stratadesk.tui.figures import clip
from stratadesk.tui.widgets.drawing import STRONG, Drawing

MARK = "◆ "


class ChangeLine(Drawing):
    """One row; not there while there is nothing to say."""

    def __init__(self) -> None:
        super().__init__()
        self._words = ""

    def show(self, words: str) -> None:
        """Say `words` from now on; without any, go away."""
        self._words = words
        self.display = bool(words)
        self.redraw()

    def picture(self, width: int) -> Content:
        """Draw the words."""
        return Content.styled(clip(MARK + self._words, width), STRONG)
