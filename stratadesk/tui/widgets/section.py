"""The base of every part of the monitor: a drawing made from one snapshot."""

from typing import ClassVar

from textual.content import Content

from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import Drawing


class Section(Drawing):
    """Draws a `MonitorState`.

    Subclasses define `draw`. The number of rows depends on the width alone, never on the
    figures, so that nothing below moves. With `watches` they name the fields of the state that
    they draw: a snapshot in which these are the same is not drawn again. One that `ages` is to be
    redrawn now and then even so.
    """

    watches: ClassVar[tuple[str, ...]] = ()
    ages: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.state = MonitorState()

    def show(self, state: MonitorState) -> None:
        """Draw `state` from now on."""
        before, self.state = self.state, state
        fields = self.watches
        if not fields or any(getattr(before, f) is not getattr(state, f) for f in fields):
            self.redraw()

    def draw(self, state: MonitorState, width: int) -> Content:
        """Return the drawing of `state`, `width` cells wide."""
        raise NotImplementedError

    def picture(self, width: int) -> Content:
        """Draw the latest snapshot."""
        return self.draw(self.state, width)
