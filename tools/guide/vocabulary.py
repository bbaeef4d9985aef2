"""The guide's tokenizer: a byte-level BPE trained on its own texts, cut as qwen35 cuts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from stratadesk.engine.pre_tokenizers import pre_tokenizer_by_name
from tools.guide.convert import SPECIAL

END_OF_TEXT, TURN, TURN_END = range(3)


def train(texts: Iterable[str], size: int) -> Any:
    """A `tokenizers.Tokenizer` of at most `size` tokens, the control tokens first.

    Every byte has a token, so any text can be encoded.
    """
    tokenizer = _cutting(Tokenizer(models.BPE()))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=_controls(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _controls() -> list[Any]:
    return [AddedToken(text, special=True, normalized=False) for text in SPECIAL]


def _cutting(tokenizer: Any) -> Any:
    """The tokenizer with qwen35's way of cutting text and a token for every byte."""
    pattern = pre_tokenizer_by_name("qwen35").pattern
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def from_gguf(path: Path) -> Any:
    """The tokenizer of a guide's file, as `train` made it."""
    fields = gguf.GGUFReader(path).fields
    texts = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    ids = {text: i for i, text in enumerate(texts)}
    tokenizer = _cutting(Tokenizer(models.BPE(ids, merges)))
    tokenizer.add_special_tokens(_controls())
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
