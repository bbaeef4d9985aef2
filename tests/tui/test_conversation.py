"""A turn sent twice, or a failed one sent for ever, spoils every later answer."""

from stratadesk.engine.commands import Message
from stratadesk.tui.conversation import Conversation


def test_a_follow_up_sends_everything_said_with_the_reasoning() -> None:
    chat = Conversation()
    assert chat.ask("one") == (Message("user", "one"),)
    assert not chat.follow_up
    assert chat.answered("uno", "think")
    assert chat.ask("two") == (
        Message("user", "one"),
        Message("assistant", "uno", "think"),
        Message("user", "two"),
    )
    assert chat.follow_up


def test_a_model_that_remembers_little_is_told_the_last_exchanges_alone() -> None:
    chat = Conversation()
    for number in range(4):
        chat.ask(f"question {number}")
        chat.answered(f"answer {number}", "")
    assert [m.content for m in chat.ask("now", remembered=2)] == [
        "question 2",
        "answer 2",
        "question 3",
        "answer 3",
        "now",
    ]
    assert [m.content for m in chat.ask("again", remembered=0)] == ["again"]
    assert len(chat.messages) == 9, "nothing of the chat itself is forgotten"


def test_a_question_without_an_answer_is_not_sent_again() -> None:
    chat = Conversation()
    chat.ask("too long")
    assert not chat.answered("", "")
    assert chat.ask("shorter") == (Message("user", "shorter"),)


def test_an_answer_that_was_cut_while_thinking_counts() -> None:
    chat = Conversation()
    chat.ask("one")
    assert chat.answered("", "hmm")
    assert chat.messages[-1] == Message("assistant", "", "hmm")


def test_an_answer_after_the_chat_was_forgotten_is_dropped() -> None:
    chat = Conversation()
    chat.ask("one")
    chat.clear()
    assert not chat.answered("uno", "")
    assert chat.messages == ()
