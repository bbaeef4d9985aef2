"""A document that is streamed must end up as the same document read at once.

Lists are the risk: they grow in place instead of being built anew.
"""

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Markdown

from stratadesk.tui.widgets.growing_list import GrowingList, ItemRow
from stratadesk.tui.widgets.safe_markdown import HIGHLIGHT_LIMIT, PlainFence, SafeMarkdown
from tests.tui.looking import text_of, wait_until

DOCUMENTS = {
    "bullets": "- one\n- two **bold**\n- three\n",
    "numbers past ten": "".join(f"{n}. item number {n}\n" for n in range(1, 14)),
    "numbers from seven": "7. seven\n8. eight\n9. nine\n10. ten\n",
    "nested": "- one\n  - in\n    1. deep\n    2. deeper\n  - in two\n- two\n\n  more of two\n",
    "code in an item": "1. look:\n   ```py\n   x = 1\n   y = 2\n   ```\n2. done\n",
    "table in an item": "- t\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n\n- next\n",
    "list, then text, then list": "- a\n- b\n\nText between.\n\n1. c\n2. d\n",
    "empty items": "-\n- \n- x\n",
    "quote": "> quoted\n> - item\n> - item two\n\nafter\n",
    "text that turns into a heading": "Title\n=====\n\nbody\n",
    "all": "# H\n\npara\nline 2\n\n- a\n  - b\n\n```\nx\n```\n\n| x |\n|---|\n| 1 |\n\n---\n\nend",
}


class Page(App[None]):
    CSS_PATH = "../../stratadesk/tui/stratadesk.tcss"

    def compose(self) -> ComposeResult:
        yield SafeMarkdown()

    @property
    def document(self) -> SafeMarkdown:
        return self.query_one(SafeMarkdown)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_streamed_equals_read_at_once(name: str) -> None:
    app, source, piece = Page(), DOCUMENTS[name], 5
    async with app.run_test(size=(60, 40)) as pilot:
        await app.document.update(source)
        await pilot.pause(0.02)
        at_once = text_of(app)
        await app.document.update("")
        app.document._last_parsed_line = 0
        for start in range(0, len(source), piece):
            await Markdown.append(app.document, source[start : start + piece])
        await pilot.pause(0.02)
        assert text_of(app) == at_once


async def test_items_that_are_complete_are_not_built_again() -> None:
    app = Page()
    async with app.run_test(size=(60, 40)):
        await app.document.append("- one\n- two\n- thr")
        before = list(app.query(ItemRow))
        await app.document.append("ee\n- four\n- five")
        after = list(app.query(ItemRow))
        assert after[:3] == before
        assert len(after) == 5
        assert len(app.query(GrowingList)) == 1


async def test_feed_and_close_lose_nothing() -> None:
    app = Page()
    async with app.run_test(size=(60, 40)) as pilot:
        for number in range(100):
            await app.document.feed(f"word{number} ")
        await app.document.close()
        await app.document.close()
        await wait_until(pilot, lambda: "word99" in text_of(app), "the last word")
        assert app.document.source == "".join(f"word{number} " for number in range(100))


async def test_text_that_is_nothing_once_cleaned_ends_like_any_other() -> None:
    app = Page()
    async with app.run_test(size=(60, 40)):
        await app.document.feed("\u200b")
        await app.document.close()
        await app.document.feed("")
        await app.document.close()
        assert app.document.source == ""


def test_code_without_a_language_or_too_long_is_not_coloured() -> None:
    assert PlainFence.highlight("x = 1", "").spans == []
    assert PlainFence.highlight("x = 1\n" * HIGHLIGHT_LIMIT, "python").spans == []
    assert PlainFence.highlight("x = 1", "python title=x").spans != []
    assert isinstance(PlainFence.highlight("x", "no such {language}"), Content)


@pytest.mark.parametrize(
    ("target", "opens"),
    [("https://a.example/x", True), ("javascript:alert(1)", False), ("file:///etc/passwd", False)],
)
async def test_only_web_addresses_open(
    target: str, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, opened = Page(), []
    monkeypatch.setattr(app, "open_url", lambda url, **_: opened.append(url))
    async with app.run_test() as pilot:
        app.document.post_message(Markdown.LinkClicked(app.document, target))
        await pilot.pause(0.05)
        assert opened == ([target] if opens else [])
