"""The choice of a model among those found on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Collapsible, ListView, Static

from stratadesk.errors import StrataDeskError
from stratadesk.keys import find_key
from stratadesk.models.guide import BUNDLED
from stratadesk.tui.bindings import bind
from stratadesk.tui.empty_picker import nothing_found
from stratadesk.tui.figures import plural
from stratadesk.tui.model_filter import narrowed
from stratadesk.tui.ports import Discover, ModelEntry, ModelSearch, SkippedEntry
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.key_bar import KeyBar, KeyItem
from stratadesk.tui.widgets.model_list import ModelItem
from stratadesk.tui.widgets.model_picks import ModelPicks

SEARCHING = "Looking for GGUF files …"
NO_MATCH = "No model matches {typed}; {back} takes a letter back, {all} shows all."


class PickerScreen(Screen[Path | None]):
    """Lists models, marks those that cannot run, and says why files were passed over.

    What is typed narrows the list.
    """

    BINDINGS: ClassVar[list[BindingType]] = [bind("stop", "close"), bind("widen", "widen")]

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
        self._found: ModelSearch | None = None
        self._shown: list[ModelEntry] = []
        self._typed = ""
        self._keys = KeyBar(picker_keys(0, filtered=False))

    def compose(self) -> ComposeResult:
        """Make the heading, the list, the skipped files and the keys."""
        yield Static("Choose a model", id="picker-title")
        yield Static(SEARCHING, id="picker-note", markup=False)
        yield ModelPicks(id="models")
        with Collapsible(id="skipped"):
            yield Static("", id="skipped-files", markup=False)
        yield self._keys

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

    async def on_key(self, event: events.Key) -> None:
        """Narrow the list by a letter."""
        character = event.character if event.is_printable else None
        if character is not None and (self._typed or not character.isspace()):
            event.stop()
            await self._filter(self._typed + character)

    async def action_widen(self) -> None:
        """Take a letter of the filter back."""
        await self._filter(self._typed[:-1])

    async def action_close(self) -> None:
        """Show all models again; else go back without a choice."""
        if self._typed:
            await self._filter("")
        else:
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
        self._found = event.result
        await self._filter(self._typed)
        self._show_skipped(event.result.skipped)

    async def _filter(self, typed: str) -> None:
        """List the models that `typed` leaves, the first one highlighted."""
        self._typed = typed
        if self._found is None:
            return
        self._keys.show(picker_keys(len(self._found.models), filtered=bool(typed)))
        wanted = narrowed(sorted(self._found.models, key=_rank), typed)
        self._note(_filtered(typed, wanted, self._found) if typed else _summary(self._found))
        if wanted == self._shown:
            return
        self._shown = wanted
        models = self.query_one(ListView)
        await models.clear()
        await models.extend(ModelItem(model) for model in wanted)
        models.display = bool(wanted)
        if wanted:
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


def picker_keys(models: int, *, filtered: bool) -> tuple[KeyItem, ...]:
    """Return the footer: what is typed filters, and a filter is taken back before the screen is."""
    filters = KeyItem("widen", "screen.widen", weight=3)
    if not filtered:
        filters = replace(filters, typed="A-Z", says="filter")
    return (
        KeyItem("help", "app.show_help", weight=1),
        *((filters,) if models > 1 else ()),
        KeyItem("stop", "screen.close", weight=2, says="show all" if filtered else "back"),
        KeyItem("quit", "app.quit", weight=4),
    )


def _filtered(typed: str, wanted: Sequence[ModelEntry], found: ModelSearch) -> str:
    shown = f"“{safe_line(typed)}”"
    if not wanted:
        keys = {"back": find_key("widen").caption, "all": find_key("stop").caption}
        return NO_MATCH.format(typed=shown, **keys)
    return f"{shown}: {len(wanted)} of {plural(len(found.models), 'model')} · Enter starts one"


def _rank(model: ModelEntry) -> tuple[bool, bool]:
    """Models that run come first, the guide behind the user's own ones."""
    return not model.supported, model.store == BUNDLED


def _summary(found: ModelSearch) -> str:
    if all(model.store == BUNDLED for model in found.models):
        return nothing_found(found)
    blocked = sum(not model.supported for model in found.models)
    note = f" · {blocked} cannot run in this version" if blocked else ""
    return f"{plural(len(found.models), 'model')} found{note} · Enter starts one"
