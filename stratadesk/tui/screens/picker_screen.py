"""The choice of a model among those found on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Collapsible, ListView, Static

from stratadesk.errors import StrataDeskError
from stratadesk.models.guide import BUNDLED
from stratadesk.tui.bindings import bind
from stratadesk.tui.figures import plural
from stratadesk.tui.ports import Discover, ModelEntry, ModelSearch, SkippedEntry
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.key_bar import KeyBar, KeyItem
from stratadesk.tui.widgets.model_list import ModelItem
from stratadesk.tui.widgets.model_picks import ModelPicks

SEARCHING = "Looking for GGUF files …"
GET_ONE = (
    "Get one with LM Studio or from Hugging Face, for example a Qwen3-30B-A3B GGUF; for a folder "
    "of your own set STRATADESK_MODELS to its path."
)
NOTHING_FOUND = f"No model was found on this machine. {GET_ONE}"
GUIDE_ALONE = f"No other model was found on this machine. {GET_ONE}"
KEYS = (
    KeyItem("help", "app.show_help", weight=1),
    KeyItem("stop", "screen.close", weight=2, says="back"),
    KeyItem("quit", "app.quit", weight=3),
)


class PickerScreen(Screen[Path | None]):
    """Lists models, marks those that cannot run, and says why files were passed over."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("stop", "close")]

    @dataclass
    class Found(Message):
        """The search is over."""

        result: ModelSearch

    @dataclass
    class Failed(Message):
        """The search could not be made."""

        sentence: str

    def __init__(self, discover: Discover) -> None:
        super().__init__()
        self._discover = discover

    def compose(self) -> ComposeResult:
        """Make the heading, the list, the skipped files and the keys."""
        yield Static("Choose a model", id="picker-title")
        yield Static(SEARCHING, id="picker-note", markup=False)
        yield ModelPicks(id="models")
        with Collapsible(id="skipped"):
            yield Static("", id="skipped-files", markup=False)
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        """Start searching."""
        self.query_one(ListView).display = False
        self.query_one(Collapsible).display = False
        self._search()

    def on_list_view_selected(self, event: ListView.Selected) -> None:
        """Take the model, or say why it cannot run."""
        if not isinstance(event.item, ModelItem):
            return
        if event.item.model.supported:
            self.dismiss(event.item.model.path)
        else:
            reason = event.item.model.why_not or "this version cannot run it"
            self.notify(safe_line(reason), severity="warning", markup=False)

    def action_close(self) -> None:
        """Go back without a choice."""
        self.dismiss(None)

    @work(thread=True, exclusive=True)
    def _search(self) -> None:
        try:
            found = self._discover()
        except (OSError, StrataDeskError) as error:
            self.post_message(self.Failed(f"The search failed: {error}"))
        else:
            self.post_message(self.Found(found))

    def on_picker_screen_failed(self, event: Failed) -> None:
        """Say why there is no list."""
        self._note(safe_line(event.sentence))

    async def on_picker_screen_found(self, event: Found) -> None:
        """List what was found."""
        found = event.result
        models = self.query_one(ListView)
        ordered = sorted(found.models, key=_rank)
        await models.extend(ModelItem(model) for model in ordered)
        models.display = bool(ordered)
        self._note(_summary(found))
        self._show_skipped(found.skipped)
        if ordered:
            models.index = 0
            models.focus()

    def _note(self, text: str) -> None:
        self.query_one("#picker-note", Static).update(text)

    def _show_skipped(self, skipped: Sequence[SkippedEntry]) -> None:
        section = self.query_one(Collapsible)
        section.display = bool(skipped)
        section.title = f"{plural(len(skipped), 'file')} passed over"
        rows = (f"{safe_line(str(entry.path))}\n  {safe_line(entry.reason)}" for entry in skipped)
        self.query_one("#skipped-files", Static).update("\n".join(rows))


def _rank(model: ModelEntry) -> tuple[bool, bool]:
    """Models that run come first, the guide behind the user's own ones."""
    return not model.supported, model.store == BUNDLED


def _summary(found: ModelSearch) -> str:
    if not found.models:
        return NOTHING_FOUND
    if all(model.store == BUNDLED for model in found.models):
        return GUIDE_ALONE
    blocked = sum(not model.supported for model in found.models)
    note = f" · {blocked} cannot run in this version" if blocked else ""
    return f"{plural(len(found.models), 'model')} found{note} · Enter starts one"
