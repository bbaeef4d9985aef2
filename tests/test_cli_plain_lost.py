"""Guards against a line mode that loses a chat, or a question, with the graphics card."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Command, Generate, LoadModel, Message
from stratadesk.engine.events import Event
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode
from stratadesk.tui.handover import ChatRecord
from tests.test_cli_plain import LOAD, READY, answers, chat
from tests.tui import scripted_engine as script
from tests.tui.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.timeout(60)


def losing(command: Command) -> Iterable[Event]:
    """Answer once; lose the card in the second answer."""
    if isinstance(command, Generate) and command.request_id == 2:
        said = (script.thought(2, "Well."), script.said(2, "Half an ans"))
        return (*said, DeviceLost(0.0, "The driver was reset."), script.failure(2))
    return answers(command)


def test_a_lost_card_is_told_and_reload_hands_the_chat_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[ChatRecord] = []

    def hand_over(record: ChatRecord) -> Path:
        kept.append(record)
        return Path("kept")

    engine = ScriptedEngine(losing)
    typed = "Hi\nMore\nnot sent\n/reload\nfor the next program\n"
    page, code = chat(monkeypatch, typed, engine, hand_over=hand_over)
    told = "/reload starts StrataDesk again and keeps the chat.\n"
    assert f"[card lost] The driver was reset.\n{told}[failed] " in page
    assert f"You: not sent\nThe GPU is lost; {told}You: /reload\n" in page
    assert page.endswith("You: /reload\n")
    assert [command for command in engine.commands if isinstance(command, LoadModel)] == [LOAD]
    assert engine.stops == 1
    messages = [(m.role, m.content, m.reasoning) for m in kept[0].messages]
    assert messages == [
        ("user", "Hi", ""),
        ("assistant", "Hello there.", "Hm.\nSo."),
        ("user", "More", ""),
        ("assistant", "Half an ans", "Well."),
    ]
    assert code == ExitCode.OK

    engine = ScriptedEngine(answers)
    page, _ = chat(monkeypatch, "And now?\n", engine, before=kept[0])
    assert page.startswith(READY + "[started again] the chat is kept; it goes on with 4 messages.")
    assert engine.requests[0].messages == (*kept[0].messages, Message("user", "And now?"))


def test_a_question_that_the_loss_left_open_is_told_after_the_new_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at_once(command: Command) -> Iterable[Event]:
        if isinstance(command, Generate):
            return (DeviceLost(0.0, "The driver was reset."), script.failure(command.request_id))
        return answers(command)

    kept: list[ChatRecord] = []

    def hand_over(record: ChatRecord) -> Path:
        kept.append(record)
        return Path("kept")

    chat(monkeypatch, "What is it?\n/reload\n", ScriptedEngine(at_once), hand_over=hand_over)
    page, _ = chat(monkeypatch, "Hi\n", before=kept[0])
    assert "0 messages.\n[no answer] Ask again what the lost GPU left open: What is it?\n" in page


def test_a_chat_that_cannot_be_kept_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_record: ChatRecord) -> Path:
        raise StrataDeskError("The disk is full.", "Make room.")

    page, code = chat(
        monkeypatch, "Hi\nMore\n/reload\n/help\n", ScriptedEngine(losing), hand_over=refuse
    )
    assert "You: /reload\n[failed] The disk is full. Make room.\nYou: /help\n" in page
    assert code == ExitCode.OK


def test_a_card_lost_by_the_first_load_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = (DeviceLost(0.0, "The driver was reset."), script.failure(None))
    page, code = chat(monkeypatch, "Hi\n", ScriptedEngine(lambda _: lost))
    assert "/reload" not in page
    assert code == 3


def test_a_card_lost_by_a_reload_is_told_with_one_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = replace(script.failure(None), remedy="Start StrataDesk again.")
    loads = iter((script.loaded(), (DeviceLost(0.0, "The driver was reset."), failed)))
    page, _ = chat(monkeypatch, "/reload\n", ScriptedEngine(lambda _: next(loads)))
    assert "Start StrataDesk again." not in page
    assert page.count("/reload starts StrataDesk again and keeps the chat.") == 1
