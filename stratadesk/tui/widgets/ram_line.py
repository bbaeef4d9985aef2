"""How much RAM this program and the machine use, in one row, where a card has the room."""

from textual.content import Content

from stratadesk.tui.figures import NO_VALUE, fit, gib
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import figure, row
from stratadesk.tui.widgets.section import Section


class RamLine(Section):
    """One row."""

    watches = ("memory",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw what this program has and what is available."""
        sample = state.memory
        if sample is None:
            return row("RAM", figure(NO_VALUE, live=False), width)
        words = (gib(sample.resident), f"{gib(sample.available)} available")
        return row("RAM", figure(fit(words, width - 4), live=False), width)
