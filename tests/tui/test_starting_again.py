"""Guards against a chat that a lost card takes with it, or mixes up.

The program starts again in a process of its own; what it hands over goes through JSON here, as it
does through the file there.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import EngineSettings, Generate, KvFormat, LoadModel, Message
from stratadesk.engine.events import Event, Failure, FinishReason, Phase
from stratadesk.engine.plain_objects import made, plain
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.handover import Answered, ChatRecord, Handover, Turn, Written
from stratadesk.tui.options import AppOptions
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.chat_pane import COMES_BACK
from stratadesk.tui.widgets.composer import Composer
from stratadesk.tui.widgets.prompt_input import RECALL, PromptInput
from stratadesk.tui.widgets.transcript import Transcript
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

SIZE = (100, 60)
WHY = "The card stopped answering."
TELLS = "F8 starts StrataDesk again and keeps the chat."
NO_DRAFT = Written()
ANSWER = (
    "Some **bold** text. " * 9 + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"
)
AGAIN = "StrataDesk has started again and kept the chat."


class Kept:
    """Takes what is handed over, as the file would give it back."""

    def __init__(self) -> None:
        self.handovers: list[Handover] = []

    def __call__(self, handover: Handover) -> Path:
        written = json.dumps(plain(handover))
        self.handovers.append(made(Handover, json.loads(written)))
        assert self.handovers[-1] == handover
        return Path("kept")


def app_of(engine: ScriptedEngine, kept: Callable[[Handover], Path] | None) -> StrataDeskApp:
    return make_app(engine, options=AppOptions(hand_over=kept))


def app_after(engine: ScriptedEngine, handover: Handover, kept: Kept) -> StrataDeskApp:
    options = AppOptions(hand_over=kept, chat=handover.chat, look=handover.look)
    return make_app(engine, settings=handover.settings, options=options)


def app_with(engine: ScriptedEngine, chat: ChatRecord) -> StrataDeskApp:
    return make_app(engine, options=AppOptions(hand_over=Kept(), chat=chat))


def long_chat(exchanges: int, draft: Written = NO_DRAFT) -> ChatRecord:
    """A chat that takes a while to lay out: its answers have a table and code."""
    turns: list[Turn] = []
    for number in range(exchanges):
        turns.append(Turn(said=Written(f"question {number}")))
        text = f"answer {number}\n\n{ANSWER}"
        turns.append(Turn(answered=Answered(text, "Hm.", thought_s=2.0, thought_tokens=30)))
    return ChatRecord((), tuple(turns), draft)


def lost(request: int | None = None) -> tuple[Event, ...]:
    """What the engine says of a loss, in the middle of a request or while it rests."""
    failure = Failure(request, "GPU lost", WHY, "Start StrataDesk again.", ExitCode.NO_GPU)
    told = () if request is None else (failure,)
    return (script.phase(Phase.FAILED), DeviceLost(0.0, WHY), *told, script.phase(Phase.EMPTY))


async def ask(pilot: Pilot[None], engine: ScriptedEngine, text: str) -> int:
    before = len(engine.requests)
    await pilot.press(*text, "enter")
    await wait_until(pilot, lambda: len(engine.requests) > before, "the request")
    return engine.requests[-1].request_id


def prompt_of(app: StrataDeskApp) -> PromptInput:
    return app.chat_screen.query_one(PromptInput)


def chat_rows(app: StrataDeskApp) -> list[str]:
    """The rows of the chat, without the monitor beside it, and without blank ones."""
    rows = [row.split("│")[0].strip() for row in rows_of(app)]
    return [row for row in rows if row]


async def test_the_whole_chat_stands_there_again_and_goes_on() -> None:
    engine, kept = ScriptedEngine(), Kept()
    app = app_of(engine, kept)
    async with app.run_test(size=SIZE) as pilot:
        engine.say(script.failure(None), script.failure(None))
        await wait_for_text(pilot, "Chat template failed · again")
        first = await ask(pilot, engine, "one")
        engine.say(
            script.thought(first, "Hm."),
            script.writing(first, 9, thinking=7),
            script.said(first, "Some **bold** text"),
            script.finished(
                first, "Some **bold** text", reasoning="Hm.", reason=FinishReason.CANCELLED
            ),
        )
        await wait_for_text(pilot, "■ Stopped")
        second = await ask(pilot, engine, "two")
        engine.say(
            script.started(second, note="message 2 was changed"),
            script.said(second, "Half an ans"),
            *lost(second),
        )
        await wait_for_text(pilot, "GPU LOST")
        await wait_for_text(pilot, TELLS)
        await pilot.press(*"not sent")
        before = text_of(app)
        for mark in ("Thought for", "7 tokens", "message 2 was changed", "✗ GPU lost", WHY):
            assert mark in before
        commands = len(engine.commands)
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    assert app.handed_over == Path("kept")
    assert app.return_code in (None, 0)
    assert len(engine.commands) == commands, "nothing more is asked of the lost card"
    assert engine.stops == 1

    handover = kept.handovers[0]
    assert handover.model == str(script.MODEL)
    assert handover.chat.messages == (
        Message("user", "one"),
        Message("assistant", "Some **bold** text", "Hm."),
        Message("user", "two"),
        Message("assistant", "Half an ans"),
    )
    engine = ScriptedEngine()
    again = app_after(engine, handover, kept)
    async with again.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, AGAIN)
        await wait_for_text(pilot, "● READY")
        shown = chat_rows(again)
        assert prompt_of(again).text == "not sent"
        for mark in ("Some bold text", "■ Stopped", "7 tokens", "message 2 was changed", WHY):
            assert any(mark in row for row in shown), mark
        order = [
            next(n for n, row in enumerate(shown) if mark in row)
            for mark in (
                "Chat template failed · again",
                "one",
                "Thought for",
                "Some bold text",
                "two",
                "Half an ans",
                "✗ GPU lost",
                AGAIN,
            )
        ]
        assert order == sorted(order)
        assert again.handed_over is None
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.requests, "the request")
        assert engine.requests[0].messages == (
            *handover.chat.messages,
            Message("user", "not sent"),
        )


async def test_a_message_without_an_answer_and_what_was_typed_since_stay_apart() -> None:
    engine, kept = ScriptedEngine(), Kept()
    app = app_of(engine, kept)
    async with app.run_test(size=SIZE) as pilot:
        request = await ask(pilot, engine, "first question")
        await pilot.press(*"typed ahead")
        engine.say(*lost(request))
        await wait_for_text(pilot, TELLS)
        await pilot.press(*" of it")
        assert prompt_of(app).text == "typed ahead of it"
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    assert kept.handovers[0].chat.messages == ()

    engine = ScriptedEngine()
    again = app_after(engine, kept.handovers[0], kept)
    async with again.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        assert prompt_of(again).text == "typed ahead of it"
        await pilot.press("up")
        assert prompt_of(again).text == "typed ahead of it"
        assert RECALL not in text_of(again)
        request = await ask(pilot, engine, "")
        assert engine.requests[0].messages == (Message("user", "typed ahead of it"),)
        await wait_for_text(pilot, RECALL)
        engine.say(*lost(request))
        await wait_for_text(pilot, "GPU LOST")
        await pilot.press("up")
        assert prompt_of(again).text == "typed ahead of it"
        await pilot.press("ctrl+u", "up")
        assert prompt_of(again).text == "first question"
        await pilot.press("ctrl+u")
        assert RECALL not in text_of(again)


async def test_pastes_of_a_message_come_back_with_it() -> None:
    engine, kept = ScriptedEngine(), Kept()
    app = app_of(engine, kept)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        prompt_of(app).post_message(PromptInput.Attached("a pasted log\n" * 50))
        await wait_for_text(pilot, "pasted text")
        request = await ask(pilot, engine, "what is it?")
        engine.say(*lost(request))
        await wait_for_text(pilot, RECALL)
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    again = app_after(ScriptedEngine(), kept.handovers[0], kept)
    async with again.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, RECALL)
        await pilot.press("up")
        draft, held = again.chat_screen.query_one(Composer).record()
        assert (draft.typed, draft.pastes) == ("what is it?", ("a pasted log\n" * 50,))
        assert held == ()


async def test_a_message_that_waited_for_a_model_is_held_when_its_loading_loses_the_card() -> None:
    engine = ScriptedEngine()
    engine.silent = True
    app = app_of(engine, Kept())
    async with app.run_test(size=SIZE) as pilot:
        engine.say(*script.loading(1, 12))
        await wait_for_text(pilot, "LOADING")
        await pilot.press(*"early", "enter")
        await wait_for_text(pilot, "Waits for the model")
        await pilot.press(*"later")
        failure = Failure(
            None, "GPU lost", WHY, "Start StrataDesk again.", ExitCode.NO_GPU, loading=True
        )
        engine.say(
            script.phase(Phase.FAILED), DeviceLost(0.0, WHY), failure, script.phase(Phase.EMPTY)
        )
        await wait_for_text(pilot, TELLS)
        assert prompt_of(app).text == "later"
        assert "Waits for the model" not in text_of(app)
        await pilot.press("ctrl+u", "up")
        assert prompt_of(app).text == "early"


async def test_what_is_typed_while_a_long_chat_comes_back_follows_the_draft() -> None:
    chat = long_chat(20, Written("my draft", ("a pasted log\n" * 50,)))
    app = app_with(ScriptedEngine(), chat)
    async with app.run_test(size=SIZE) as pilot:
        assert AGAIN not in text_of(app)
        prompt_of(app).insert("XYZ")
        await wait_for_text(pilot, AGAIN)
        draft, _ = app.chat_screen.query_one(Composer).record()
        assert draft.typed.replace("\n", "") == "my draftXYZ"
        assert draft.pastes == chat.draft.pastes


@pytest.mark.parametrize("answers", [1, 2, 4, 5])
async def test_who_leaves_while_a_long_chat_comes_back_just_leaves(answers: int) -> None:
    engine = ScriptedEngine()
    app = app_with(engine, long_chat(20))
    async with app.run_test(size=(100, 100)):
        while len(app.chat_screen.query(AnswerTurn)) < answers:
            await asyncio.sleep(0.001)
        assert len(app.chat_screen.query(AnswerTurn)) < 20
        app.exit()
    assert app.failed_with is None
    assert app.exit_code == 0
    assert engine.stops == 1


async def test_the_engine_is_heard_before_the_chat_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was loaded long since was told of only when all of a long chat stood there."""
    go_on = asyncio.Event()
    replay = Transcript.replay

    async def later(view: Transcript, turns: Sequence[Turn], *, thinking_shown: bool) -> None:
        await go_on.wait()
        await replay(view, turns, thinking_shown=thinking_shown)

    monkeypatch.setattr(Transcript, "replay", later)
    app = app_with(ScriptedEngine(), long_chat(3))
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, COMES_BACK)
        await wait_for_text(pilot, "● READY")
        await wait_for_text(pilot, "Demo 30B A3B answers from here on.")
        await pilot.press("x", "enter")
        await wait_until(pilot, lambda: prompt_of(app).text == "x", "the key")
        assert COMES_BACK in text_of(app)
        go_on.set()
        await wait_for_text(pilot, AGAIN)
        shown = text_of(app)
        assert shown.index("answer 2") < shown.index(AGAIN) < shown.index("answers from here on.")


async def test_a_model_that_was_announced_before_the_loss_and_never_asked_is_not_again() -> None:
    turns = (*long_chat(2).turns, Turn(remark="Old answers from here on."))
    app = app_with(ScriptedEngine(), ChatRecord((), turns))
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, AGAIN)
        await wait_for_text(pilot, "Demo 30B A3B answers from here on.")
        assert "Old answers" not in text_of(app)


async def test_what_was_chosen_since_the_start_is_handed_over() -> None:
    engine, kept = ScriptedEngine(), Kept()
    app = app_of(engine, kept)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        await pilot.press("f7", "f6")
        app.theme = "strata-light"
        engine.say(*lost())
        await wait_for_text(pilot, "GPU LOST")
        assert "F8 starts StrataDesk again and keeps the chat" in text_of(app)
        await pilot.press("f9")
        await wait_for_text(pilot, "K      KV cache")
        await pilot.press("k")
        await wait_for_text(pilot, "F8 starts StrataDesk again and keeps the chat.")
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    handover = kept.handovers[0]
    assert handover.settings == replace(EngineSettings(), kv_format=KvFormat.Q8_0)
    look = handover.look
    assert (look.theme, look.monitor, look.thinking) == ("strata-light", "narrow", "shown")


async def test_without_a_loss_f8_loads_in_the_same_program_and_after_one_only_on_the_key() -> None:
    engine, kept = ScriptedEngine(), Kept()
    app = app_of(engine, kept)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(engine.commands) == 2, "another load")
        assert all(isinstance(command, LoadModel) for command in engine.commands)
        engine.say(*lost())
        await wait_for_text(pilot, "GPU LOST")
        await pilot.pause(0.3)
        assert app.is_running
        assert kept.handovers == []


async def test_a_chat_that_cannot_be_kept_is_not_left() -> None:
    def refuse(_handover: Handover) -> Path:
        raise StrataDeskError("The chat cannot be kept in /full: no space.", "Make room.")

    engine = ScriptedEngine()
    app = app_of(engine, refuse)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        engine.say(*lost())
        await wait_for_text(pilot, "GPU LOST")
        await pilot.press("f8")
        await wait_for_text(pilot, "The chat cannot be kept in /full: no space.")
        assert app.is_running
        assert app.handed_over is None


async def test_an_app_that_cannot_hand_over_tries_to_load() -> None:
    engine = ScriptedEngine()
    app = app_of(engine, None)
    async with app.run_test(size=SIZE) as pilot:
        await wait_for_text(pilot, "● READY")
        engine.say(*lost())
        await wait_for_text(pilot, "GPU LOST")
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(engine.commands) == 2, "another load")
        assert not any(isinstance(command, Generate) for command in engine.commands)
