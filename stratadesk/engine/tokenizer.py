"""Text to token ids and back: byte-level BPE built from a GGUF header.

Merging runs in the `tokenizers` library; special tokens are cut out of the text before, by
llama.cpp's rules, so that ids equal llama.cpp's.
"""

import re
from collections.abc import Iterable, Sequence

from tokenizers import Regex
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from stratadesk.engine.byte_level import bytes_of
from stratadesk.engine.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer, pre_tokenizer_by_name
from stratadesk.engine.special_tokens import SpecialTokens
from stratadesk.engine.vocabulary import TokenizerHeader, TokenizerSpec, TokenType, Vocabulary
from stratadesk.errors import UsageError

__all__ = ["PRE_TOKENIZERS", "Tokenizer", "TokenizerHeader", "TokenizerSpec"]

_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Encodes and decodes text with one model's vocabulary.

    Attributes:
        vocab_size: Number of tokens.
        end_ids: Tokens after which generation ends.
        bos_id: The token prompts may start with, None when there is none.
        add_bos: Whether prompts start with it; `with_bos` puts it there.
        bos_text: Text of the BOS token for chat templates, "" when there is none.
        eos_text: Text of the EOS token, likewise.
        warnings: Sentences about what is wrong in the header but does no harm.

    Raises:
        UnsupportedModelError: The pre-tokenizer is not one of `PRE_TOKENIZERS`.
        GgufError: The lists do not fit together.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        pre = pre_tokenizer_by_name(spec.pre)
        self._vocabulary = vocabulary = Vocabulary(spec)
        self._special = SpecialTokens(vocabulary.control_tokens(), vocabulary.user_defined_tokens())
        self._bpe, n_lost = _build_bpe(vocabulary, spec.merges, pre)
        self.vocab_size = len(vocabulary)
        self.end_ids = vocabulary.end_ids
        self.bos_id = vocabulary.bos_id
        wants_bos = pre.add_bos if spec.add_bos is None else spec.add_bos
        self.add_bos = wants_bos and self.bos_id is not None
        self.bos_text = self._text(vocabulary.bos_id)
        self.eos_text = self._text(vocabulary.eos_id)
        self.warnings = (*vocabulary.warnings, *_merge_warnings(n_lost))

    @classmethod
    def from_gguf(cls, header: TokenizerHeader) -> "Tokenizer":
        """Build the tokenizer that an open GGUF file describes; errors as for the class."""
        return cls(TokenizerSpec.from_gguf(header))

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of `text`, without BOS.

        With `parse_special`, texts of control and user-defined tokens become those tokens;
        without, control tokens are ordinary text and user-defined ones still recognised.
        Lone surrogates count as U+FFFD.
        """
        text = _SURROGATES.sub("\ufffd", text)
        return self._ids(self._special.split(text, parse_special=parse_special))

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Return the ids of a prompt whose contents went through `escape_content`.

        Unbroken markers become special tokens. Elsewhere `mark` is dropped and the text is
        encoded with special parsing off, so no content yields a control token.
        """
        text = _SURROGATES.sub("\ufffd", text)
        ids: list[int] = []
        for piece in self._special.split_marked(text, mark):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids.extend(self.encode(piece, parse_special=False))
        return ids

    def escape_content(self, text: str, mark: str) -> str:
        """Return `text` with `mark` inside every occurrence of a control token's text."""
        return self._special.escape(text, mark)

    def choose_mark(self, texts: Iterable[str]) -> str:
        """Return a character for `escape_content` that occurs in none of `texts`.

        `texts` should be all contents of a chat and the source of its template.
        """
        return self._special.choose_mark(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, special tokens as their texts, invalid UTF-8 as U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes a token stands for: UTF-8 text of a special one, none of an unused.

        Raises UsageError for an id outside the vocabulary.
        """
        if not 0 <= token < self.vocab_size:
            raise UsageError(
                f"Token id {token} is outside the vocabulary of {self.vocab_size:,} tokens.",
                f"Use ids from 0 to {self.vocab_size - 1}; stratadesk tokenize prints a text's.",
            )
        text, kind = self._vocabulary.texts[token], self._vocabulary.kind(token)
        if kind == TokenType.UNUSED:
            return b""
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
            return text.encode("utf-8", "replace")
        return bytes_of(text)

    def is_control(self, token: int) -> bool:
        """Tell whether a token steers the model and is never shown."""
        return self._vocabulary.is_control(token)

    def special_id(self, text: str) -> int | None:
        """Return the id of the control or user-defined token with exactly this text."""
        token = self._vocabulary.ids.get(text)
        if token is None or self._vocabulary.kind(token) in (TokenType.NORMAL, TokenType.UNUSED):
            return None
        return token

    def with_bos(self, ids: Sequence[int]) -> list[int]:
        """Return `ids` starting with the BOS token if the model wants it and it is not there."""
        if not self.add_bos or self.bos_id is None or list(ids[:1]) == [self.bos_id]:
            return list(ids)
        return [self.bos_id, *ids]

    def _ids(self, pieces: Iterable[str | int]) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids.extend(self._bpe.encode(piece, add_special_tokens=False).ids)
        return ids

    def _text(self, token: int | None) -> str:
        return "" if token is None else self._vocabulary.texts[token]


def _build_bpe(
    vocabulary: Vocabulary, merges: Sequence[str], pre: PreTokenizer
) -> tuple[BpeTokenizer, int]:
    """Return the merging part, which cannot yield a control token, and how many merges it lost.

    Merges with a part or a result outside the vocabulary are left out; of equal ones the first
    counts.
    """
    hidden = vocabulary.header_control
    ids = {text: token for text, token in vocabulary.ids.items() if token not in hidden}
    wanted = dict.fromkeys(merges)
    parts = (merge.partition(" ") for merge in wanted)
    pairs = [(a, b) for a, _, b in parts if a in ids and b in ids and a + b in ids]
    bpe = BpeTokenizer(BPE(ids, pairs, ignore_merges=pre.whole_pieces))
    bpe.pre_tokenizer = Steps(
        [
            *(Split(Regex(pattern), behavior="isolated") for pattern in pre.steps),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return bpe, len(wanted) - len(pairs)


def _merge_warnings(n_lost: int) -> tuple[str, ...]:
    if not n_lost:
        return ()
    return (
        f"{n_lost:,} entries of tokenizer.ggml.merges name tokens outside the vocabulary "
        "and are ignored.",
    )
