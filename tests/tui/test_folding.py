"""A long answer that slows down with each word, or jumps when what is off screen is left out.

Folding must not be seen: at every place of the document the screen is the same without it.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.selection import Selection

from stratadesk.engine.event_queue import EventQueue
from stratadesk.tui.bridge import Bridge
from stratadesk.tui.widgets import folding
from stratadesk.tui.widgets.growing_list import GrowingList
from stratadesk.tui.widgets.safe_markdown import SafeMarkdown
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, wait_until

CHAPTER = """\
## Chapter {0}

A paragraph of chapter {0} that is long enough to need more than one row of this narrow screen.

1. first of {0}
2. second of {0}
   - inner

```python
x = {0}
```

| a | b |
| --- | --- |
| {0} | y |

"""
BOOK = "".join(CHAPTER.format(number) for number in range(12))
LIST = "".join(f"{number}. item {number}\n" for number in range(1, 121))


class Page(App[None]):
    CSS_PATH = "../../stratadesk/tui/stratadesk.tcss"

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield SafeMarkdown()

    @property
    def document(self) -> SafeMarkdown:
        return self.query_one(SafeMarkdown)

    @property
    def view(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)

    @property
    def hidden(self) -> int:
        return sum(not block.display for block in self.document._folding.blocks)


@asynccontextmanager
async def streamed(text: str, pieces: int = 15) -> AsyncIterator[tuple[Page, Pilot[None]]]:
    """A page on which `text` has been written while the reader followed."""
    app = Page()
    async with app.run_test(size=(50, 20)) as pilot:
        app.view.anchor()
        step = len(text) // pieces + 1
        for start in range(0, len(text), step):
            await app.document.append(text[start : start + step])
            await asyncio.sleep(0.005)
        await still(app)
        yield app, pilot


async def still(app: Page) -> list[str]:
    """Let the app run until its screen stays the same, and return its rows."""
    rows: list[str] = []
    unchanged = 0
    while unchanged < 4:
        await asyncio.sleep(0.02)
        before, rows = rows, rows_of(app)
        unchanged = unchanged + 1 if rows == before else 0
    return rows


async def screens_of(text: str, offsets: list[int]) -> tuple[int, list[list[str]]]:
    """The height of the document, and what is on screen at each offset."""
    async with streamed(text) as (app, _):
        shown = []
        for offset in offsets:
            app.view.scroll_to(y=offset, animate=False, force=True)
            shown.append(await still(app))
        return app.document.size.height, shown


@pytest.mark.parametrize("text", [BOOK, LIST], ids=["book", "list"])
async def test_folding_is_not_seen(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = [10_000, 90, 89, 40, 0, 41, 10_000]
    folded = await screens_of(text, offsets)
    monkeypatch.setattr(folding, "FOLD_FROM", 1_000_000)
    assert folded == await screens_of(text, offsets)


async def test_what_is_far_is_out_of_the_layout_and_comes_back() -> None:
    async with streamed(BOOK) as (app, pilot):
        blocks = len(app.document._folding.blocks)
        assert app.hidden > blocks * 0.8
        assert len(app.screen._compositor.full_map) < 100
        app.view.scroll_home(animate=False)
        await wait_until(pilot, lambda: "Chapter 0" in "\n".join(rows_of(app)), "the start")
        assert app.hidden > blocks * 0.5


async def test_the_items_of_a_long_list_are_folded_too() -> None:
    async with streamed(LIST) as (app, _):
        (growing,) = app.query(GrowingList)
        assert sum(row.display for row in growing.rows) < 60
        assert "120. item 120" in "\n".join(rows_of(app))


async def test_a_new_width_unfolds_measures_and_folds_again() -> None:
    async with streamed(BOOK) as (app, pilot):
        await pilot.resize_terminal(30, 20)
        await wait_until(pilot, lambda: app.hidden > 30, "folded again")
        narrow = app.document.size.height
        app.view.scroll_home(animate=False)
        await wait_until(pilot, lambda: "Chapter 0" in "\n".join(rows_of(app)), "the start")
        assert app.document.size.height == narrow


async def test_nothing_is_hidden_while_text_is_selected() -> None:
    async with streamed(CHAPTER) as (app, pilot):
        app.screen.selections = {app.document._folding.blocks[0]: Selection(None, None)}
        await app.document.append(BOOK)
        await still(app)
        assert app.hidden == 0
        app.screen.clear_selection()
        await app.document.append("\n\nand on\n")
        await wait_until(pilot, lambda: app.hidden > 30, "folded")


@pytest.mark.usefixtures("collected")
def test_garbage_is_collected_between_answers_and_not_within() -> None:
    gc.unfreeze()
    found, usual, later = gc.get_threshold(), (700, 10, 10), []
    gc.set_threshold(*usual)
    queue = EventQueue()
    bridge = Bridge(queue, lambda: None, lambda _delay, callback: later.append(callback))
    bridge.open()
    try:
        assert gc.get_threshold()[2] > usual[2]
        for event in (*script.loaded(), script.finished(1, "done")):
            queue.put(event)
        bridge.read()
        assert gc.get_freeze_count() > 0
        before = gc.get_stats()[2]["collections"]
        later[-1]()
        assert gc.get_stats()[2]["collections"] == before + 1
    finally:
        bridge.close()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0
    gc.set_threshold(*found)
    gc.freeze()
