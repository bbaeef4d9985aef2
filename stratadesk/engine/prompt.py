"""From a `Generate` command to the prompt it means: one text, or token ids as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from stratadesk.engine.commands import Generate, Message
from stratadesk.errors import UsageError

if TYPE_CHECKING:
    from stratadesk.engine.chat_template import ChatTemplate
    from stratadesk.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in the form in which it is compared with what is held.

    In `text`, the text of a control token means that token, unless `mark` stands after its
    first character: then it is ordinary text of a user. `text` is None when `ids` were given
    instead. `template` is the chat template's origin ("model", "ChatML"), empty without one.
    """

    text: str | None = None
    mark: str = ""
    ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    template: str = ""

    def text_marked(self, mark: str) -> str | None:
        """Return `text` with another mark in place of its own, None when that is not possible."""
        if self.text is None or self.mark == mark:
            return self.text
        return None if mark in self.text else self.text.replace(self.mark, mark)

    def encode(self, tokenizer: Tokenizer) -> Sequence[int]:
        """Return all ids of the prompt, with the BOS token where the model wants one."""
        if self.text is None:
            return self.ids
        return tokenizer.with_bos(tokenizer.encode_marked(self.text, self.mark))


def make_prompt(command: Generate, tokenizer: Tokenizer, template: ChatTemplate) -> Prompt:
    """Return the prompt of `command`, its messages rendered with `template`.

    Raises:
        UsageError: no prompt, more than one, or token ids outside the vocabulary.
        TemplateError: the template fails on these messages.
    """
    _check_kind(command)
    if command.tokens:
        check_token_ids(command.tokens, tokenizer.vocab_size)
        return Prompt(ids=command.tokens)
    if command.raw_prompt is not None:
        return Prompt(command.raw_prompt, tokenizer.choose_mark([command.raw_prompt]))
    return _chat_prompt(command, tokenizer, template)


def check_token_ids(ids: Iterable[int], vocab_size: int) -> None:
    """Check that a model with `vocab_size` tokens knows all `ids`.

    Raises:
        UsageError: the first id that it does not know.
    """
    for token in ids:
        if not 0 <= token < vocab_size:
            raise UsageError(
                f"Token id {token} is outside the vocabulary of {vocab_size:,} tokens.",
                f"Give ids from 0 to {vocab_size - 1}.",
            )


def spell(ids: Sequence[int], tokenizer: Tokenizer, mark: str) -> str | None:
    """Return the text that `ids` stand for in the form of `Prompt.text`.

    Bytes that are no UTF-8 count as U+FFFD. None when the text itself has a `mark`.
    """
    parts = []
    for control, run in groupby(ids, tokenizer.is_control):
        text = tokenizer.decode(run)
        if mark in text:
            return None
        parts.append(text if control else tokenizer.escape_content(text, mark))
    return "".join(parts)


def _check_kind(command: Generate) -> None:
    given = (bool(command.messages), command.raw_prompt is not None, bool(command.tokens))
    if sum(given) > 1:
        raise UsageError(
            "The request has more than one prompt.", "Give messages, a raw prompt or token ids."
        )
    if not any(given) or command.raw_prompt == "":
        raise UsageError("The prompt is empty.", "Write something, or give at least one token id.")


def _chat_prompt(command: Generate, tokenizer: Tokenizer, template: ChatTemplate) -> Prompt:
    contents = [text for m in command.messages for text in (m.role, m.content, m.reasoning)]
    mark = tokenizer.choose_mark([*contents, template.source])
    text = template.render(
        [_escaped(message, tokenizer, mark) for message in command.messages],
        enable_thinking=command.thinking,
        bos_token=tokenizer.bos_text,
        eos_token=tokenizer.eos_text,
    )
    return Prompt(text, mark, messages=command.messages, template=template.origin)


def _escaped(message: Message, tokenizer: Tokenizer, mark: str) -> Message:
    return replace(
        message,
        role=tokenizer.escape_content(message.role, mark),
        content=tokenizer.escape_content(message.content, mark),
        reasoning=tokenizer.escape_content(message.reasoning, mark),
    )
