"""An answer of which each word costs all that was written before ends as a slide show.

What is complete must be neither arranged nor drawn again when text comes behind it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import textual.widget
from markdown_it.token import Token
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.layout import DockArrangeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from stratadesk.tui.screens.settling import Settling
from stratadesk.tui.widgets.folding import Folding
from stratadesk.tui.widgets.growing_list import GrowingList, ItemRow
from stratadesk.tui.widgets.safe_markdown import SafeMarkdown, StreamedParagraph
from tests.tui.looking import text_of, wait_until

LIST = "- one\n- two\n- three\n\n"
PARAGRAPHS = "".join(f"Paragraph {number} of many.\n\n" for number in range(30))


class Desk(Settling, Screen[None]):
    """A screen of the app's kind: a document that is followed, and a line below it."""

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield SafeMarkdown()
        yield Static("below", id="below")


class Page(App[None]):
    CSS_PATH = "../../stratadesk/tui/stratadesk.tcss"
    CSS = "#below { dock: bottom; height: 1; }"

    async def on_mount(self) -> None:
        await self.push_screen(Desk())
        self.screen.query_one(VerticalScroll).anchor()

    @property
    def document(self) -> SafeMarkdown:
        return self.screen.query_one(SafeMarkdown)


@contextmanager
def arranged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Widget]]:
    """Collect the containers that are arranged anew."""
    seen: list[Widget] = []
    arrange = textual.widget.arrange

    def noted(widget: Widget, *arguments: object, **options: object) -> DockArrangeResult:
        seen.append(widget)
        return arrange(widget, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(textual.widget, "arrange", noted)
        yield seen


@contextmanager
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Widget]]:
    """Collect the widgets that are drawn anew."""
    seen: list[Widget] = []
    render = StylesCache.render_widget

    def noted(self: StylesCache, widget: Widget, crop: Region) -> list[Strip]:
        seen.append(widget)
        return render(self, widget, crop)

    with monkeypatch.context() as patch:
        patch.setattr(StylesCache, "render_widget", noted)
        yield seen


async def nothing_is_drawn(pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the app run until it rests: what has just come is drawn more than once."""
    with drawn(monkeypatch) as seen:
        seen.append(pilot.app.screen)
        while seen:
            seen.clear()
            await pilot.pause(0.3)


async def test_what_is_complete_is_arranged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Page()
    async with app.run_test(size=(60, 40)) as pilot:
        await app.document.append(LIST + "A line.\n\n")
        await wait_until(pilot, lambda: "A line." in text_of(app), "the list")
        complete = {*app.screen.query(GrowingList), *app.screen.query(ItemRow)}
        with arranged(monkeypatch) as seen:
            await app.document.append("Another line.\n\n")
            await wait_until(pilot, lambda: "Another" in text_of(app), "another line")
        assert app.document in seen
        assert complete.isdisjoint(seen)


async def test_what_only_moves_up_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Page()
    async with app.run_test(size=(60, 20)) as pilot:
        await app.document.append(PARAGRAPHS)
        await wait_until(pilot, lambda: "Paragraph 29" in text_of(app), "the end")
        await nothing_is_drawn(pilot, monkeypatch)
        *_, moving, _last = app.screen.query(StreamedParagraph)
        with drawn(monkeypatch) as seen:
            await app.document.append("Another line.\n\n")
            await wait_until(pilot, lambda: "Another" in text_of(app), "another line")
        assert "Paragraph 29" in text_of(app)
        assert moving not in seen
        app.theme = "textual-light"
        with drawn(monkeypatch) as seen:
            await wait_until(pilot, lambda: moving in seen, "drawn in other colours")


async def test_a_change_beside_a_document_draws_nothing_of_it() -> None:
    app = Page()
    async with app.run_test(size=(60, 20)) as pilot:
        await app.document.append(PARAGRAPHS)
        await wait_until(pilot, lambda: "Paragraph 29" in text_of(app), "the end")
        *_, above, last = app.screen.query(StreamedParagraph)
        regions = [region for region, _, _ in app.screen._compositor._get_renders(last.region)]
        assert last.region in regions
        assert above.region not in regions


async def test_a_heading_asks_for_no_layout_besides_that_of_its_coming() -> None:
    app = Page()
    async with app.run_test(size=(60, 20)):
        heading = SafeMarkdown.BLOCKS["h2"](app.document, Token("heading_open", "h2", 1))
        heading.set_content(Content("A heading"))
        assert not heading._layout_required


async def test_while_text_streams_blocks_are_hidden_with_the_next_piece_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hidden by itself, each block takes a layout of the whole screen."""
    asked: list[bool] = []
    adjust = Folding.adjust

    def noted(self: Folding, window: object, *, hide: bool = True) -> None:
        asked.append(hide)
        adjust(self, window, hide=hide)  # type: ignore[arg-type]

    monkeypatch.setattr(Folding, "adjust", noted)
    app = Page()
    async with app.run_test(size=(60, 20)) as pilot:
        await app.document.feed(PARAGRAPHS)
        await wait_until(pilot, lambda: "Paragraph 29" in text_of(app), "the end")
        await wait_until(pilot, lambda: asked, "measured")
        assert not any(asked)
        assert all(block.display for block in app.document._folding.blocks)
        await app.document.feed("Another line.\n\n")
        await wait_until(pilot, lambda: "Another" in text_of(app), "another line")
        assert any(asked)
        await app.document.feed("And one.\n\n")
        await wait_until(pilot, lambda: "And one." in text_of(app), "and one")
        assert not all(block.display for block in app.document._folding.blocks)
        await app.document.close()
