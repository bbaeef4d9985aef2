"""How much of a prompt is already held, and which ids are left to read.

Held ids stay as they were generated and are never made again from text: a prompt that goes on
from the text they stand for consists of the held ids and the ids of the rest of its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stratadesk.engine.prefix_note import why_it_broke
from stratadesk.engine.prompt import Prompt, spell
from stratadesk.engine.session import Session, Turn

if TYPE_CHECKING:
    from stratadesk.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """The ids of a prompt, the first `reused` of them held; `note` says where a prefix broke."""

    ids: Sequence[int]
    reused: int
    note: str = ""


def plan_reading(prompt: Prompt, session: Session[Any], tokenizer: Tokenizer) -> ReadingPlan:
    """Compare `prompt` with what `session` holds; computes and changes nothing.

    Either all that is held is reused or nothing: a state cannot go back to a shorter prefix.
    """
    held, turn = session.ids, session.turn
    if turn is None or not held:
        return _afresh(prompt.encode(tokenizer), session.lost)
    ids = _continued(prompt, held, turn, tokenizer) or prompt.encode(tokenizer)
    common = _common_length(ids, held)
    if common < len(held):
        text = _text_held(turn, _answer(held, turn), tokenizer, prompt.mark)
        return _afresh(ids, why_it_broke(prompt, turn, text, common))
    if len(ids) == len(held) and session.logits is None:
        return _afresh(ids, "it ends inside what is held, and the logits there were not kept")
    return ReadingPlan(ids, len(held))


def _afresh(ids: Sequence[int], reason: str) -> ReadingPlan:
    return ReadingPlan(ids, 0, f"Read afresh: {reason}." if reason else "")


def _continued(
    prompt: Prompt, held: Sequence[int], turn: Turn, tokenizer: Tokenizer
) -> Sequence[int] | None:
    """Return the ids of a prompt whose text starts with a held answer's, None for another.

    Without an answer in between, all ids come from one text, and comparing ids is exact.
    """
    if prompt.text is None:
        return None
    for pending in (turn.pending, ()):
        answer = [*_answer(held, turn), *pending]
        text = _text_held(turn, answer, tokenizer, prompt.mark) if answer else None
        if text is not None and prompt.text.startswith(text):
            rest = tokenizer.encode_marked(prompt.text[len(text) :], prompt.mark)
            return [*held, *pending, *rest]
    return None


def _answer(held: Sequence[int], turn: Turn) -> Sequence[int]:
    return held[turn.prompt_tokens :]


def _text_held(turn: Turn, answer: Sequence[int], tokenizer: Tokenizer, mark: str) -> str | None:
    before, after = turn.prompt.text_marked(mark), spell(answer, tokenizer, mark)
    return None if before is None or after is None else before + after


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
