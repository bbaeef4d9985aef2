"""The list of models to choose from, with the keys that long lists need."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import ListView


class ModelPicks(ListView):
    """Page keys, Home and End move the highlight, as the arrow keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "move(-1)", "A page up", show=False),
        Binding("pagedown", "move(1)", "A page down", show=False),
        Binding("home", "end_of_list(False)", "The first model", show=False),
        Binding("end", "end_of_list(True)", "The last model", show=False),
    ]

    def action_move(self, pages: int) -> None:
        """Move the highlight by so many pages."""
        if self.children:
            models = max(self.size.height // self._rows_of_one, 1)
            wanted = (self.index or 0) + pages * models
            self.index = min(max(wanted, 0), len(self.children) - 1)

    def action_end_of_list(self, last: bool) -> None:
        """Highlight the last model, or the first."""
        if self.children:
            self.index = len(self.children) - 1 if last else 0

    @property
    def _rows_of_one(self) -> int:
        """The height of most models in the list."""
        return max(min(child.outer_size.height for child in self.children), 1)
