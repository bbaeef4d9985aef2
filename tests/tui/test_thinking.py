"""Thinking that is always open buries the answer; folded thinking must not change what is sent."""

from textual.app import App

from stratadesk.engine.events import Phase
from stratadesk.tui.widgets.thinking_block import ThinkingBlock, ThinkingHeader
from tests.tui import scripted_engine as script
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

THOUGHT = "The user wants a greeting."


def blocks(app: App[None]) -> list[ThinkingBlock]:
    return list(app.screen.query(ThinkingBlock))


async def test_thinking_is_folded_with_its_time_and_tokens_and_f7_unfolds_it() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.phase(Phase.DECODING), script.thought(1, THOUGHT))
        engine.say(script.writing(1, 80, thinking=80))
        await wait_for_text(pilot, "▸ Thinking for 4 s · 80 tokens")
        assert THOUGHT not in text_of(pilot.app)
        engine.say(script.said(1, "Hello!"), script.writing(1, 100, thinking=80))
        await wait_for_text(pilot, "▸ Thought for 4 s · 80 tokens")
        await pilot.press("f7")
        await wait_for_text(pilot, THOUGHT)
        assert "▾ Thought" in text_of(pilot.app)
        assert "Thinking shown" in text_of(pilot.app)
        await pilot.press("f7")
        await wait_until(pilot, lambda: THOUGHT not in text_of(pilot.app), "folded again")


async def test_thinking_streams_into_an_unfolded_block_and_text_before_f7_is_not_lost() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.thought(1, "First "))
        await wait_for_text(pilot, "▸ Thinking")
        await pilot.press("f7")
        await wait_for_text(pilot, "First")
        engine.say(script.thought(1, "then more"))
        await wait_for_text(pilot, "First then more")
        await pilot.press("f7")
        engine.say(script.thought(1, " and unseen"), script.said(1, "Answer"))
        await wait_for_text(pilot, "Answer")
        await pilot.press("f7")
        await wait_for_text(pilot, "First then more and unseen")


async def test_one_block_unfolds_by_its_own_line() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.thought(1, THOUGHT), script.said(1, "Hello!"))
        await wait_for_text(pilot, "Hello!")
        await pilot.click(ThinkingHeader)
        await wait_for_text(pilot, THOUGHT)
        pilot.app.screen.query_one(ThinkingHeader).focus()
        await pilot.press("enter")
        await wait_until(pilot, lambda: THOUGHT not in text_of(pilot.app), "folded again")
        await pilot.press("space")
        await wait_for_text(pilot, THOUGHT)


async def test_an_answer_without_thinking_has_no_block() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "Hello!"), script.finished(1, "Hello!"))
        await wait_for_text(pilot, "Hello!")
        assert blocks(pilot.app) == []
