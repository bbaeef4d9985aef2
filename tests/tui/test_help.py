"""A list of keys whose end is below the screen's edge hides the very keys one looks for."""

import doctest

import pytest
from textual.events import MouseScrollDown
from textual.fuzzy import Matcher

from stratadesk.keys import KEYS
from stratadesk.tui.widgets import told_scroll
from tests.tui.looking import text_of, wait_for_text
from tests.tui.scripted_engine import ScriptedEngine, make_app

FIRST_WORDS, LAST_LINE = KEYS[0].tooltip.split(";")[0], KEYS[-1].tooltip


@pytest.mark.parametrize("way", ["end", "pagedown", "down", "wheel"])
async def test_help_scrolls_where_it_has_no_room_and_says_that_there_is_more(way: str) -> None:
    """At 80x24 the last keys are below the edge: each usual way of scrolling must reach them."""
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("f1")
        await wait_for_text(pilot, "more below · PgDn")
        assert FIRST_WORDS in text_of(pilot.app)
        assert LAST_LINE not in text_of(pilot.app)
        for _ in range(len(KEYS)):
            if "below" not in text_of(pilot.app):
                break
            if way == "wheel":
                await pilot._post_mouse_events([MouseScrollDown], "#help")
            else:
                await pilot.press(way)
        await wait_for_text(pilot, LAST_LINE)
        await wait_for_text(pilot, "more above · PgUp")
        assert "below" not in text_of(pilot.app)
        await pilot.press("home")
        await wait_for_text(pilot, FIRST_WORDS)


async def test_help_that_fits_says_nothing_of_more() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 45)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("f1")
        await wait_for_text(pilot, LAST_LINE)
        assert "more below" not in text_of(pilot.app)
        await pilot.resize_terminal(100, 20)
        await wait_for_text(pilot, "more below · PgDn")


@pytest.mark.parametrize(
    ("typed", "title"),
    [("theme", "Theme"), ("help", "Help: all keys"), ("reload", "Reload the model")],
)
async def test_a_word_typed_whole_finds_its_command_before_those_with_its_letters(
    typed: str, title: str
) -> None:
    """Help was called Keys, and "reload" found only what stops a load."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(100, 45)) as pilot:
        await wait_for_text(pilot, "READY")
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert max(titles, key=Matcher(typed).match) == title


def test_examples_of_what_is_hidden() -> None:
    result = doctest.testmod(told_scroll)
    assert result.attempted > 0
    assert result.failed == 0
