"""The guide's tokenizer: a byte-level BPE trained on its own texts, cut as qwen35 cuts."""

from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from stratadesk.engine.pre_tokenizers import pre_tokenizer_by_name
from tools.guide.convert import SPECIAL

END_OF_TEXT, TURN, TURN_END = range(3)


def train(texts: Iterable[str], size: int) -> Any:
    """A `tokenizers.Tokenizer` of at most `size` tokens, the control tokens first.

    Every byte has a token, so any text can be encoded.
    """
    tokenizer = Tokenizer(models.BPE())
    pattern = pre_tokenizer_by_name("qwen35").pattern
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def around(tokenizer: Any, role: str) -> tuple[list[int], list[int]]:
    """The ids before and behind a message, as the chat template writes them."""
    head = tokenizer.encode(f"{role}\n", add_special_tokens=False).ids
    return [TURN, *head], [TURN_END, *tokenizer.encode("\n", add_special_tokens=False).ids]


def prompt(tokenizer: Any, question: str) -> list[int]:
    """The ids of a chat of one question, ready to be answered."""
    head, tail = around(tokenizer, "user")
    body = tokenizer.encode(question, add_special_tokens=False).ids
    return [*head, *body, *tail, *around(tokenizer, "assistant")[0]]
