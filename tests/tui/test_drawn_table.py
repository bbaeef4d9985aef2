"""A table that leaves words out, or that costs a widget for each cell."""

import pytest
from markdown_it.token import Token
from textual.content import Content
from textual.widgets import Markdown

from stratadesk.tui.widgets.drawn_table import DrawnTable, Grid, column_widths
from tests.tui.looking import rows_of, text_of, wait_until
from tests.tui.test_markdown import Page

TABLE = """\
| phase | slots lent | why |
| --- | ---: | --- |
| prompt | 190 | its bytes hold the buffers |
| decode | 0 | [needed](https://a.example) |
"""
PICTURE = """\
┌────────┬────────────┬────────────────────────────┐
│ phase  │ slots lent │ why                        │
├────────┼────────────┼────────────────────────────┤
│ prompt │        190 │ its bytes hold the buffers │
├────────┼────────────┼────────────────────────────┤
│ decode │          0 │ needed                     │
└────────┴────────────┴────────────────────────────┘"""
NARROW = """\
┌────────┬───────┬─────────┐
│        │ slots │         │
│ phase  │  lent │ why     │
├────────┼───────┼─────────┤
│ prompt │   190 │ its     │
│        │       │ bytes   │
│        │       │ hold    │
│        │       │ the     │
│        │       │ buffers │
├────────┼───────┼─────────┤
│ decode │     0 │ needed  │
└────────┴───────┴─────────┘"""


@pytest.mark.parametrize("picture", [PICTURE, NARROW])
async def test_a_table_is_ruled_and_folds_words_where_it_is_narrow(picture: str) -> None:
    app, lines = Page(), picture.split("\n")
    async with app.run_test(size=(len(lines[0]), 30)) as pilot:
        await app.document.append(TABLE)
        await wait_until(pilot, lambda: rows_of(app)[: len(lines)] == lines, "the table")


async def test_a_table_is_one_widget_that_grows_with_each_row() -> None:
    app = Page()
    async with app.run_test(size=(60, 30)) as pilot:
        for at in range(0, len(TABLE), 7):
            await Markdown.append(app.document, TABLE[at : at + 7])
        (table,) = app.query(DrawnTable)
        assert not table.children
        await wait_until(pilot, lambda: "decode" in text_of(app), "the last row")
        assert table.region.height == PICTURE.count("\n") + 1
        await pilot.resize_terminal(28, 30)
        await wait_until(pilot, lambda: table.region.height == NARROW.count("\n") + 1, "narrow")


async def test_a_link_in_a_cell_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    app, opened = Page(), []
    monkeypatch.setattr(app, "open_url", lambda url, **_: opened.append(url))
    async with app.run_test(size=(52, 30)) as pilot:
        await app.document.append(TABLE)
        await wait_until(pilot, lambda: "needed" in text_of(app), "the table")
        (table,) = app.query(DrawnTable)
        await pilot.click(table, offset=(25, 5))
        await wait_until(pilot, lambda: opened == ["https://a.example"], "it opened")


def test_columns_never_need_more_than_there_is_unless_nothing_would_be_left() -> None:
    for room in range(9, 90):
        widths = column_widths([6, 40, 30], [6, 9, 12], room)
        assert sum(widths) <= max(room, 9)
        assert min(widths) >= 3
    assert column_widths([6, 40, 30], [6, 9, 12], 27) == [6, 9, 12]


def test_short_rows_are_filled_up_and_wide_characters_counted() -> None:
    grid = Grid(((Content("一二"), Content("b")), (Content(""), Content("c"))), (False, False))
    assert {len(line) + line.count("一") * 2 for line in grid.picture(12).plain.split("\n")} == {12}


def test_a_table_that_was_not_read_yet_takes_a_row() -> None:
    assert DrawnTable(Markdown(), Token("table_open", "table", 1))._picture(20).plain == ""
