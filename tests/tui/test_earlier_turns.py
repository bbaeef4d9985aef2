"""A long chat that comes back must neither hold the screen up nor lose what is not made yet."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.handover import ChatRecord
from stratadesk.tui.options import AppOptions
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.thinking_block import ThinkingBlock
from stratadesk.tui.widgets.transcript import Transcript
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app
from tests.tui.test_starting_again import AGAIN, SIZE, Kept, app_with, chat_rows, long_chat, lost


@asynccontextmanager
async def brought_back(
    exchanges: int,
) -> AsyncIterator[tuple[StrataDeskApp, Transcript, Pilot[None]]]:
    """An app that has brought back the end of a chat, and rests."""
    app = app_with(ScriptedEngine(), long_chat(exchanges))
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, AGAIN)
        view = app.chat_screen.chat.transcript
        await wait_until(pilot, lambda: not view._looks_back, "rest")
        yield app, view, pilot


def answers_of(app: StrataDeskApp) -> int:
    return len(app.chat_screen.query(AnswerTurn))


async def test_only_what_is_near_the_view_of_a_long_chat_is_made_and_all_of_it_is_handed_over() -> (
    None
):
    engine, kept = ScriptedEngine(), Kept()
    chat = long_chat(150)
    options = AppOptions(hand_over=kept, chat=chat)
    app = make_app(engine, options=options)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, AGAIN)
        await wait_for_text(pilot, "answer 149")
        await pilot.pause(0.5)
        assert answers_of(app) <= 16
        await pilot.press("x", "enter")
        await wait_until(pilot, lambda: engine.requests, "the request")
        engine.say(*lost(engine.requests[0].request_id))
        await wait_for_text(pilot, "GPU LOST")
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    assert kept.handovers[0].chat.turns[:300] == chat.turns


async def test_earlier_turns_come_when_the_reader_does_and_nothing_jumps() -> None:
    async with brought_back(30) as (app, view, pilot):
        made = answers_of(app)
        assert made < 30
        seen = text_of(app)
        for _ in range(200):
            await pilot.press("pageup")
            await pilot.pause()
            above = chat_rows(app)
            await wait_until(pilot, lambda: not view._looks_back, "rest")
            await pilot.pause()
            if answers_of(app) > made:
                made = answers_of(app)
                assert chat_rows(app)[:40] == above[:40], "what is read stays where it is"
            seen += text_of(app)
            if "question 0" in seen:
                break
        assert {int(number) for number in re.findall(r"question (\d+)", seen)} == set(range(30))
        assert made == 30
        assert "earlier turn" not in text_of(app)
        assert app.chat_screen.chat.record().turns[:60] == long_chat(30).turns


async def test_what_is_not_made_yet_is_told_and_goes_with_a_new_chat() -> None:
    async with brought_back(30) as (app, view, pilot):
        left = 60 - 2 * answers_of(app)
        assert view._not_made.display
        assert f"{left} earlier turns" in str(view._not_made.content)
        await pilot.press("ctrl+n")
        await wait_for_text(pilot, "is ready")
        assert app.chat_screen.chat.record() == ChatRecord()
        assert answers_of(app) == 0
        assert not view._not_made.display


async def test_thinking_that_is_shown_is_shown_in_turns_to_come() -> None:
    async with brought_back(30) as (app, view, pilot):
        await pilot.press("f7")
        await wait_until(pilot, lambda: "▾" in text_of(app) or "Hm." in text_of(app), "thinking")
        view.scroll_to(y=0, animate=False)
        before = answers_of(app)
        await wait_until(pilot, lambda: answers_of(app) > before, "more")
        await wait_until(pilot, lambda: not view._looks_back, "rest")
        blocks = app.chat_screen.query(ThinkingBlock)
        assert len(blocks) == answers_of(app)
        assert all(block.unfolded for block in blocks)
