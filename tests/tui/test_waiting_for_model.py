"""A message sent while a model loads must not have to be sent again, and must never be lost.

And a load that cannot be cancelled holds a wrong choice for minutes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from stratadesk.engine.commands import CancelLoad, Message
from stratadesk.engine.events import EngineStopped, Failure, LoadCancelled, Phase
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.model_wait import ModelWait
from stratadesk.tui.widgets.attachments import Attachment, AttachmentBar
from stratadesk.tui.widgets.prompt_input import PromptInput
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

WAITS = "Waits for the model"
FAILED = (
    script.phase(Phase.FAILED),
    Failure(None, "Model unusable", "x.gguf is cut short.", "Choose another.", 3),
    script.phase(Phase.EMPTY),
)


@asynccontextmanager
async def loading() -> AsyncIterator[tuple[StrataDeskApp, ScriptedEngine, Pilot[None]]]:
    """An app whose model loads and loads."""
    engine = ScriptedEngine()
    engine.silent = True
    app = make_app(engine)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        engine.say(*script.loading(3, 12))
        await wait_for_text(pilot, "LOADING")
        yield app, engine, pilot


def editor(app: StrataDeskApp) -> PromptInput:
    return app.screen.query_one(PromptInput)


async def has_answered(engine: ScriptedEngine, pilot: Pilot[None]) -> None:
    """A model is loaded and has answered one question."""
    engine.say(*script.loaded())
    await wait_for_text(pilot, "is ready")
    await pilot.press("a", "enter")
    await wait_until(pilot, lambda: engine.requests, "a request")
    engine.say(script.finished(1, "b"))
    await wait_for_text(pilot, "reused 0 of 64")


async def test_it_waits_in_the_chat_and_is_sent_when_the_model_is_ready() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press(*"Hello", "enter")
        await wait_for_text(pilot, WAITS)
        assert "Hello" in text_of(app)
        far = "Compiling kernels 3 of 12 (first run only) · demo-30b-a3b-iq4_xs"
        assert far in text_of(app), "how far loading is stays on screen"
        assert editor(app).text == ""
        assert engine.requests == []
        engine.say(*script.loaded())
        await wait_until(pilot, lambda: engine.requests, "the request")
        assert engine.requests[0].messages == (Message("user", "Hello"),)
        await wait_for_text(pilot, "Waiting for the engine")
        assert WAITS not in text_of(app)
        assert "answers from here on" not in text_of(app), "nobody else has answered before"
        engine.say(script.finished(1, "Hi"))
        await wait_for_text(pilot, "reused 0 of 64")
        await pilot.press(*"more", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert len(engine.requests[1].messages) == 3


async def test_it_waits_even_before_the_engine_has_said_that_it_loads() -> None:
    engine = ScriptedEngine()
    engine.silent = True
    async with make_app(engine).run_test() as pilot:
        await wait_until(pilot, lambda: engine.commands, "the wish for a model")
        engine.say(script.phase(Phase.EMPTY))
        await pilot.press("a", "enter")
        await wait_for_text(pilot, WAITS)
        engine.say(*script.loaded())
        await wait_until(pilot, lambda: engine.requests, "the request")


async def test_escape_takes_it_back_with_what_was_typed_since() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press(*"first", "enter")
        await wait_for_text(pilot, "Esc take back")
        await pilot.press(*"second", "escape")
        await wait_until(pilot, lambda: WAITS not in text_of(app), "it waits no more")
        assert editor(app).text == "first\nsecond"
        assert "take back" not in rows_of(app)[-1]
        engine.say(*script.loaded())
        await wait_for_text(pilot, "is ready")
        assert engine.requests == []


async def test_only_one_waits() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press("a", "enter", "b", "enter")
        await wait_for_text(pilot, "A message waits already")
        assert editor(app).text == "b"
        engine.say(*script.loaded())
        await wait_until(pilot, lambda: engine.requests, "the request")
        assert engine.requests[0].messages == (Message("user", "a"),)


@pytest.mark.parametrize("end", [FAILED, (EngineStopped(),)], ids=["failure", "engine stops"])
async def test_it_comes_back_when_there_is_no_model_after_all(end: tuple[script.Event]) -> None:
    async with loading() as (app, engine, pilot):
        app.screen.query_one(AttachmentBar).add("a\nlog")
        await pilot.press(*"why?", "enter")
        await wait_for_text(pilot, WAITS)
        engine.say(*end)
        await wait_until(pilot, lambda: editor(app).text == "why?", "it comes back")
        assert app.screen.query_one(AttachmentBar).attachments == (Attachment("a\nlog"),)
        assert WAITS not in text_of(app)
        assert engine.requests == []


async def test_a_new_chat_does_not_lose_it() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press("a", "enter", "ctrl+n")
        await wait_until(pilot, lambda: editor(app).text == "a", "it comes back")
        engine.say(*script.loaded())
        await wait_for_text(pilot, "is ready")
        assert engine.requests == []


async def test_it_goes_on_waiting_when_another_model_is_chosen_meanwhile() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press("a", "enter")
        await wait_for_text(pilot, WAITS)
        app._chosen(Path("other.gguf"))
        engine.say(script.phase(Phase.EMPTY))
        await pilot.pause(0.2)
        assert WAITS in text_of(app)
        engine.say(*script.loaded(name="Other"))
        await wait_until(pilot, lambda: engine.requests, "the request")


async def test_who_answers_is_said_before_the_question_that_waited() -> None:
    async with loading() as (app, engine, pilot):
        await has_answered(engine, pilot)
        await pilot.press("f8", *"later", "enter")
        await wait_for_text(pilot, WAITS)
        engine.say(*script.loaded(name="Other"))
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        await wait_for_text(pilot, "Other answers from here on")
        shown = text_of(app)
        assert shown.index("Other answers from here on") < shown.index("later")


async def test_escape_cancels_loading_and_f8_begins_it_again() -> None:
    async with loading() as (app, engine, pilot):
        await wait_for_text(pilot, "Esc cancel")
        await pilot.press("escape")
        await wait_until(pilot, lambda: CancelLoad() in engine.commands, "the cancel")
        await wait_for_text(pilot, "Cancelling")
        assert "Esc cancel" not in text_of(app)
        await pilot.press("escape")
        assert engine.commands.count(CancelLoad()) == 1
        engine.say(LoadCancelled("demo.gguf"), script.phase(Phase.EMPTY))
        await wait_for_text(pilot, "Loading demo.gguf was cancelled")
        await wait_for_text(pilot, "NO MODEL")
        assert "F8 loads it again" in text_of(app)
        assert "Esc" not in rows_of(app)[-1]
        engine.silent = False
        await pilot.press("f8")
        await wait_for_text(pilot, "is ready")
        assert "was cancelled" not in text_of(app)


async def test_after_a_load_that_failed_f8_is_offered_wherever_it_is_asked_for() -> None:
    async with loading() as (app, engine, pilot):
        await wait_for_text(pilot, "Esc cancel")
        assert "F8" not in rows_of(app)[-1]
        failed = Failure(None, "No usable GPU", "There is none.", "", 4, loading=True)
        engine.say(script.phase(Phase.FAILED), failed, script.phase(Phase.EMPTY))
        await wait_for_text(pilot, "There is none.")
        await wait_until(pilot, lambda: "F8 reload" in rows_of(app)[-1], "F8 in the footer")
        said = app.chat_screen.chat._obstacle()
        assert said == "No model is loaded; F8 loads it again, F2 another."
        engine.silent = False
        await pilot.press("f8")
        await wait_until(pilot, lambda: "F8 reload" not in rows_of(app)[-1], "no F8 any more")


async def test_the_message_that_waits_is_taken_back_before_loading_is_cancelled() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press("a", "enter")
        await wait_for_text(pilot, "Esc take back")
        await pilot.press("escape")
        await wait_for_text(pilot, "Esc cancel")
        assert CancelLoad() not in engine.commands
        await pilot.press("escape")
        await wait_until(pilot, lambda: CancelLoad() in engine.commands, "the cancel")
        assert editor(app).text == "a"


async def test_a_message_sent_while_loading_is_being_cancelled_comes_back() -> None:
    async with loading() as (app, engine, pilot):
        await pilot.press("escape", "a", "enter")
        await wait_for_text(pilot, WAITS)
        engine.say(LoadCancelled("demo.gguf"), script.phase(Phase.EMPTY))
        await wait_until(pilot, lambda: editor(app).text == "a", "it comes back")
        await wait_for_text(pilot, "was cancelled")


async def test_a_load_cancelled_amid_a_chat_is_told_in_it() -> None:
    async with loading() as (_, engine, pilot):
        await has_answered(engine, pilot)
        await pilot.press("f8", "escape")
        await wait_until(pilot, lambda: CancelLoad() in engine.commands, "the cancel")
        engine.say(LoadCancelled("x\x1b.gguf"))
        await wait_for_text(pilot, "Loading x␛.gguf was cancelled: F8 loads it, F2 another.")
        await pilot.press("c", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "the old model answers")


def test_a_model_is_on_its_way_from_the_wish_to_the_end_of_loading() -> None:
    wait = ModelWait()
    assert not wait.on_its_way
    wait.expect()
    assert not wait.ends(Phase.EMPTY)
    assert not wait.ends(Phase.LOADING)
    assert not wait.ends(Phase.FAILED)
    assert wait.on_its_way
    assert wait.ends(Phase.READY)
    assert not wait.on_its_way
    assert not wait.ends(Phase.READY)


NOW = "answers from here on."


async def test_of_models_that_nobody_asked_only_the_last_is_announced() -> None:
    """Each reload left a line, and its warnings once more."""
    async with loading() as (app, engine, pilot):
        await has_answered(engine, pilot)
        for name in ("First", "Second"):
            engine.say(*script.loaded(name=name, warnings=("Token 99 is out of range.",)))
            await wait_for_text(pilot, f"{name} {NOW}")
        engine.say(*FAILED)
        await wait_for_text(pilot, "x.gguf is cut short.")
        engine.say(*script.loaded(name="Third", warnings=("Token 99 is out of range.",)))
        await wait_for_text(pilot, f"Third {NOW}")
        await wait_for_text(pilot, "Token 99 is out of range.")
        shown = text_of(app)
        assert shown.count(NOW) == shown.count("Token 99 is out of range.") == 1
        assert shown.index("x.gguf is cut short.") < shown.index(NOW)


async def test_a_model_that_was_asked_keeps_its_line() -> None:
    async with loading() as (app, engine, pilot):
        await has_answered(engine, pilot)
        engine.say(*script.loaded(name="First"))
        await wait_for_text(pilot, f"First {NOW}")
        await pilot.press("c", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a request")
        engine.say(script.finished(2, "d"))
        await wait_until(pilot, lambda: text_of(app).count("reused 0 of 64") == 2, "an answer")
        engine.say(*script.loaded(name="Second"))
        await wait_for_text(pilot, f"Second {NOW}")
        assert f"First {NOW}" in text_of(app)


async def test_a_message_that_waits_stays_below_the_one_line_of_the_model_it_is_for() -> None:
    async with loading() as (app, engine, pilot):
        await has_answered(engine, pilot)
        engine.say(*script.loaded(name="First"))
        await wait_for_text(pilot, f"First {NOW}")
        await pilot.press("f8")
        engine.say(*script.loading(1, 2))
        await wait_for_text(pilot, "LOADING")
        await pilot.press(*"later", "enter")
        await wait_for_text(pilot, WAITS)
        engine.say(*script.loaded(name="Second"))
        await wait_for_text(pilot, f"Second {NOW}")
        shown = text_of(app)
        assert f"First {NOW}" not in shown
        assert shown.index(f"Second {NOW}") < shown.index("later")
