"""A failure the user cannot read, or cannot get past, is a dead end."""

from dataclasses import replace

from stratadesk.engine.commands import LoadModel
from stratadesk.engine.events import EngineStopped, Failure, LoadProgress, Phase
from stratadesk.engine.failures import failure_of
from stratadesk.engine.vram.problems import SIMULATED
from stratadesk.errors import DeviceLostError
from stratadesk.tui.widgets.failure_card import remedy_here
from stratadesk.tui.widgets.prompt_input import PromptInput
from tests.tui import scripted_engine as script
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app


async def test_title_sentence_and_remedy_stand_in_the_chat_and_the_message_comes_back() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"long one", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(
            script.phase(Phase.FAILED),
            Failure(1, "Context is full", "40,000 tokens; 32,768 fit.", "Shorten it.", 2),
            script.phase(Phase.READY),
        )
        await wait_for_text(pilot, "✗ Context is full")
        await wait_for_text(pilot, "40,000 tokens; 32,768 fit.")
        await wait_for_text(pilot, "Shorten it.")
        assert pilot.app.screen.query_one(PromptInput).text == "long one"
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert len(engine.requests[1].messages) == 1


async def test_text_said_before_a_failure_stays_and_counts() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "Half an answer"), script.failure(1))
        await wait_for_text(pilot, "Chat template failed")
        assert "Half an answer" in text_of(pilot.app)
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert engine.requests[1].messages[1].content == "Half an answer"


async def test_chatml_is_offered_and_answers_the_same_message() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"hi", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.failure(1, offers_chatml=True))
        await wait_for_text(pilot, "Answer with ChatML")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        first, second = engine.requests
        assert second.force_chatml
        assert not first.force_chatml
        assert second.messages == first.messages
        await wait_for_text(pilot, "ChatML stands in")
        engine.say(script.finished(2, "hello"))
        await wait_for_text(pilot, "reused 0 of 64")
        await pilot.press(*"more", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 3, "a third request")
        assert engine.requests[2].force_chatml


async def test_chatml_can_be_chosen_from_the_palette() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Answer with ChatML" not in titles
        await pilot.press(*"hi", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.failure(1, offers_chatml=True))
        await wait_for_text(pilot, "Answer with ChatML")
        await pilot.press("ctrl+p", *"chatml", "enter")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert engine.requests[1].force_chatml


async def test_a_model_that_does_not_load_is_explained() -> None:
    engine = ScriptedEngine(
        lambda command: (
            (
                script.phase(Phase.LOADING),
                Failure(None, "Model unusable", "No such file: x.gguf.", "Choose another.", 3),
                script.phase(Phase.EMPTY),
            )
            if isinstance(command, LoadModel)
            else ()
        )
    )
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "✗ Model unusable")
        await wait_for_text(pilot, "No such file: x.gguf.")
        await wait_for_text(pilot, "NO MODEL")


async def test_the_same_failure_of_another_try_is_counted_and_not_stacked() -> None:
    no_driver = Failure(
        None, "No usable GPU", "There is no driver.", "Install it, or use --device host.", 3
    )
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        engine.say(no_driver)
        await wait_for_text(pilot, "✗ No usable GPU")
        assert "again," not in text_of(pilot.app)
        engine.say(no_driver)
        await wait_for_text(pilot, "✗ No usable GPU · again")
        engine.say(no_driver)
        await wait_for_text(pilot, "✗ No usable GPU · again, 3 times")
        assert text_of(pilot.app).count("There is no driver.") == 1
        engine.say(replace(no_driver, sentence="The driver is too old."))
        await wait_for_text(pilot, "The driver is too old.")
        engine.say(no_driver)
        await wait_until(
            pilot, lambda: text_of(pilot.app).count("There is no driver.") == 2, "a third card"
        )


async def test_a_device_that_is_not_there_is_left_with_keys() -> None:
    """Only a new start with another flag helped, which took the chat with it."""
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        engine.say(Failure(None, "No usable GPU", "None.", "Install it, or use --device host.", 3))
        await wait_for_text(pilot, "F9, then D, chooses the CPU (host); F8 loads")
        engine.say(Failure(None, "Out of memory", "None.", "Use a smaller --max-context.", 5))
        await wait_for_text(pilot, "Use a smaller --max-context.")
        assert text_of(pilot.app).count("F9, then D") == 1


async def test_warnings_of_a_model_are_shown() -> None:
    engine = ScriptedEngine(lambda _command: script.loaded(warnings=("Token 99 is out of range.",)))
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "Token 99 is out of range.")


async def test_an_engine_that_ends_is_noticed() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "Half"), EngineStopped())
        await wait_for_text(pilot, "The engine has stopped")
        assert "Half" in text_of(pilot.app)


async def test_a_stage_without_counts_and_a_size_not_known_yet_are_not_made_up() -> None:
    opening = LoadProgress("Opening the file", 0, 0, "", "x\x1b[2J.gguf")
    engine = ScriptedEngine(lambda _command: (script.phase(Phase.LOADING), opening))
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "Opening the file")
        assert "x␛[2J.gguf" in text_of(pilot.app)
        shown = text_of(pilot.app).split("LOADING")[0]
        assert "GiB" not in shown
        assert "0 of 0" not in shown


async def test_loading_shows_its_stage_and_that_it_happens_once() -> None:
    engine = ScriptedEngine(lambda _command: script.loading(3, 12))
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "Compiling kernels 3 of 12 (first run only)")
        assert "demo-30b-a3b-iq4_xs" in text_of(pilot.app)
        assert "17.0 GiB · is loading" in text_of(pilot.app)
        await wait_for_text(pilot, "LOADING")


async def test_a_card_lost_while_loading_names_the_key_that_loads_again() -> None:
    engine = ScriptedEngine()
    engine.silent = True
    async with make_app(engine).run_test(size=(100, 30)) as pilot:
        lost = DeviceLostError("The graphics card stopped answering.")
        engine.say(
            script.phase(Phase.FAILED),
            failure_of(lost, "Loading a.gguf", LoadModel(script.MODEL), None),
            script.phase(Phase.EMPTY),
        )
        await wait_for_text(pilot, "F8 starts StrataDesk again and keeps the chat.")
        before = len(engine.commands)
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(engine.commands) > before, "a second load")
        assert isinstance(engine.commands[-1], LoadModel)


def test_no_one_who_computes_on_the_cpu_is_sent_there() -> None:
    short = Failure(None, "Not enough memory", "585 MiB short.", SIMULATED, 5)
    assert remedy_here(short) == SIMULATED
    refused = replace(short, remedy="Use --device host.")
    assert remedy_here(refused).endswith("F8 loads the model there.")
