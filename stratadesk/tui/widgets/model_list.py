"""One model in the list of models to choose from."""

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import ListItem

from stratadesk.tui.figures import fit, spread
from stratadesk.tui.ports import ModelEntry
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import MUTED
from stratadesk.units import format_bytes


class ModelItem(ListItem):
    """A model that can be highlighted; whether it can be started is for the screen to say."""

    def __init__(self, model: ModelEntry) -> None:
        super().__init__(classes="" if model.supported else "-blocked")
        self.model = model

    def compose(self) -> ComposeResult:
        """Make the two rows."""
        yield ModelLabel(self.model)


class ModelLabel(Widget):
    """Name and size; below them architecture and store, and the reason if it cannot run."""

    ALLOW_SELECT = False

    def __init__(self, model: ModelEntry) -> None:
        super().__init__()
        self._model = model

    def render(self) -> Content:
        """Draw two rows, more if the reason is long."""
        model, width = self._model, self.size.width
        mark = "" if model.supported else "✗ "
        head = spread(mark + safe_line(model.name), format_bytes(model.total_bytes), width)
        rows = [Content.styled(head, "bold" if model.supported else MUTED)]
        rows.append(Content.styled(fit(self._facts(), width), MUTED))
        if not model.supported:
            rows.append(Content.styled(safe_line(model.why_not or ""), "$text-warning"))
        return Content("\n").join(rows)

    def _facts(self) -> tuple[str, ...]:
        model = self._model
        files = f"{model.shards} files" if model.shards > 1 else ""
        named = model.quantization in model.name
        facts = (model.architecture, "" if named else model.quantization, model.store)
        return (*map(safe_line, facts), files)
