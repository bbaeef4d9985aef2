"""Ctrl+C that quits in the middle of a copy, or does nothing at all, makes people kill windows."""

from stratadesk.engine.commands import Cancel
from stratadesk.keys import KEYS
from stratadesk.tui.widgets.prompt_input import PromptInput
from tests.tui import scripted_engine as script
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

LAST_LINE = KEYS[-1].tooltip


async def test_with_a_selection_in_the_editor_it_copies() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"some text", "shift+home", "ctrl+c")
        await wait_for_text(pilot, "Copied 9 characters")
        assert pilot.app.clipboard == "some text"
        assert pilot.app.is_running


async def test_with_a_selection_in_the_chat_it_copies_and_does_not_stop() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30), notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "words worth keeping"))
        await wait_for_text(pilot, "worth keeping")
        pilot.app.screen.text_select_all()
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: "worth keeping" in pilot.app.clipboard, "copied")
        assert engine.cancels == []


async def test_without_a_selection_it_stops_the_answer() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: engine.cancels, "a cancel")
        assert engine.cancels == [Cancel(1)]
        assert pilot.app.is_running


async def test_otherwise_the_second_press_quits() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("ctrl+c")
        await wait_for_text(pilot, "Press Ctrl+C again to quit")
        assert pilot.app.is_running
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: not pilot.app.is_running, "the app has ended")
    assert engine.stops == 1


async def test_a_second_press_much_later_asks_again() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("ctrl+c")
        app._interrupted_at -= 10.0
        await pilot.press("ctrl+c")
        await pilot.pause(0.1)
        assert app.is_running


async def test_ctrl_q_quits_even_while_an_answer_streams() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(*(script.said(1, f"- item {n}\n") for n in range(200)))
        await pilot.pause(0.1)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not pilot.app.is_running, "the app has ended")
    assert (engine.starts, engine.stops) == (1, 1)
    engine.say(script.said(1, "into the void"))


async def test_help_lists_every_key_and_closes() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(84, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("x", "f1")
        await wait_for_text(pilot, "Keys")
        words = " ".join(text_of(pilot.app).replace("│", "").split())
        for key in KEYS:
            assert key.caption in words
            assert key.tooltip in words
        await pilot.press("escape")
        await wait_until(pilot, lambda: LAST_LINE not in text_of(pilot.app), "closed")
        await pilot.press("f1")
        await wait_for_text(pilot, LAST_LINE)
        await pilot.press("f1")
        await wait_until(pilot, lambda: LAST_LINE not in text_of(pilot.app), "closed")
        assert pilot.app.screen.query_one(PromptInput).text == "x"
