"""Words for why a prompt does not go on from what is held: which message, and what about it."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from stratadesk.engine.commands import Message
from stratadesk.engine.prompt import Prompt

if TYPE_CHECKING:
    from stratadesk.engine.session import Turn


def why_it_broke(prompt: Prompt, turn: Turn, held_text: str | None, common_ids: int) -> str:
    """Return the reason as half a sentence; messages are numbered from 1.

    `held_text` is what the held ids stand for, None when that is not known; `common_ids` counts
    the ids at the start of prompt and session that are equal.
    """
    if prompt.messages and turn.messages:
        return _other_messages(prompt.messages, turn.messages) or _other_text(
            prompt, turn, held_text
        )
    if prompt.text is not None and held_text is not None:
        return f"its text differs after {_common_length(prompt.text, held_text):,} characters"
    return f"its token ids differ after {common_ids:,} ids"


def _other_messages(new: tuple[Message, ...], held: tuple[Message, ...]) -> str:
    """Tell how the messages themselves differ, empty when `new` goes on from `held`."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(new, held, strict=False)))
    if same == len(held):
        return ""
    if same == len(new):
        return f"message {same + 1} was taken back"
    gone = next((n for n in range(1, len(held)) if held[n:] == new[: len(held) - n]), 0)
    if gone:
        return "message 1 was left out" if gone == 1 else f"messages 1 to {gone} were left out"
    if not _talk(new) & _talk(held):
        return "this is another chat"
    return f"message {same + 1} {_edit(held[same], new[same])}"


def _talk(messages: tuple[Message, ...]) -> set[Message]:
    return {message for message in messages if message.role != "system"}


def _edit(before: Message, now: Message) -> str:
    if (before.role, before.content) != (now.role, now.content):
        return "was edited"
    return "has another reasoning" if now.reasoning else "came back without its reasoning"


def _other_text(prompt: Prompt, turn: Turn, held_text: str | None) -> str:
    """Tell what the template did to messages which are the same as before."""
    if prompt.template != turn.prompt.template:
        return f"the chat template is now {prompt.template}, not {turn.prompt.template}"
    new = _plain(prompt.text, prompt.mark)
    asked = _plain(turn.prompt.text, turn.prompt.mark)
    place = _common_length(new, _plain(held_text, prompt.mark) or asked)
    in_answer = turn.answer is not None and place >= len(asked)
    number = len(turn.messages) if in_answer else _message_at(prompt.messages, new, place)
    if in_answer and turn.unshown:
        return f"message {number} {turn.unshown}"
    reasoning = prompt.messages[number - 1].reasoning.strip()
    if reasoning and reasoning not in new:
        return f"the template dropped the reasoning of message {number}"
    return f"the template changed the text of message {number}"


def _plain(text: str | None, mark: str) -> str:
    return (text or "").replace(mark, "")


def _message_at(messages: tuple[Message, ...], text: str, place: int) -> int:
    """Return the number of the first message whose content ends behind `place` of the text."""
    end = 0
    for number, message in enumerate(messages, 1):
        content = message.content.strip()
        start = text.find(content, end)
        end = start + len(content) if start >= 0 else end
        if end > place:
            return number
    return len(messages)


def _common_length(one: str, other: str) -> int:
    """Count the characters at the start of both that are equal."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
