"""What a GGUF header says about tokens: their texts, kinds, and those that end an answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from stratadesk.errors import GgufError, UnsupportedModelError

_END_TEXTS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "</s>",
        "<|end_of_text|>",
    }
)
_CONTROL_TEXTS = _END_TEXTS | {
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|code_prefix|>",
    "<|code_middle|>",
    "<|code_suffix|>",
}


class TokenType(IntEnum):
    """Kinds of token as `tokenizer.ggml.token_type` numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5


class TokenizerHeader(Protocol):
    """The part of an open GGUF file that a tokenizer is built from."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """All metadata by key; asked only which keys there are."""

    def get_str(self, key: str) -> str:
        """Return a string; GgufError when it is missing or something else."""

    def get_int(self, key: str) -> int:
        """Return an integer; GgufError when it is missing or something else."""

    def get_bool(self, key: str) -> bool:
        """Return a boolean; GgufError when it is missing or something else."""

    def get_strings(self, key: str) -> Sequence[str]:
        """Return an array of strings; GgufError when it is missing or something else."""

    def get_ints(self, key: str) -> Sequence[int]:
        """Return an array of integers; GgufError when it is missing or something else."""


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """A byte-level BPE tokenizer in plain lists, as a GGUF header describes it.

    `merges` are "left right" in order of rank. `token_types` is as long as `tokens`, or empty
    when all are normal. Ids that the header does not name are None, and so is `add_bos` when
    the pre-tokenizer's habit decides.
    """

    pre: str
    tokens: Sequence[str]
    merges: Sequence[str]
    token_types: Sequence[int] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    eom_id: int | None = None
    add_bos: bool | None = None

    @classmethod
    def from_gguf(cls, header: TokenizerHeader) -> "TokenizerSpec":
        """Read `tokenizer.ggml.*`.

        Raises UnsupportedModelError for a tokenizer that is not byte-level BPE, GgufError for
        a key that is missing or of another type.
        """
        model = header.get_str("tokenizer.ggml.model")
        if model != "gpt2":
            raise UnsupportedModelError(
                f"The tokenizer model {model!r} is not supported (supported: gpt2, "
                "which is byte-level BPE)."
            )

        def has(name: str) -> bool:
            return f"tokenizer.ggml.{name}" in header.metadata

        def token_id(name: str) -> int | None:
            key = f"{name}_token_id"
            return header.get_int(f"tokenizer.ggml.{key}") if has(key) else None

        return cls(
            pre=header.get_str("tokenizer.ggml.pre"),
            tokens=header.get_strings("tokenizer.ggml.tokens"),
            merges=header.get_strings("tokenizer.ggml.merges"),
            token_types=(header.get_ints("tokenizer.ggml.token_type") if has("token_type") else ()),
            bos_id=token_id("bos"),
            eos_id=token_id("eos"),
            eot_id=token_id("eot"),
            eom_id=token_id("eom"),
            add_bos=(
                header.get_bool("tokenizer.ggml.add_bos_token") if has("add_bos_token") else None
            ),
        )


class Vocabulary:
    """Tokens by id and by text, their kinds, and what the header says that cannot be.

    Tokens that chat formats end with or fill in are control tokens even where the header
    calls them normal, as in llama.cpp. `end_ids` are the tokens after which generation ends,
    `bos_id` and `eos_id` are None when the header names none or one that is out of range, and
    `warnings` are sentences about such ids.

    Raises GgufError when there are no tokens or the list of kinds has another length.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        self.texts = tuple(spec.tokens)
        self._check_lengths(len(spec.token_types))
        self.ids = {text: i for i, text in enumerate(self.texts)}
        self.ids.pop("", None)
        self._kinds = {i: kind for i, kind in enumerate(spec.token_types) if kind != 1}
        self.header_control = frozenset(self._with_kind(TokenType.CONTROL, TokenType.UNKNOWN))
        self._warnings: list[str] = []
        self.bos_id = self._in_range("bos", spec.bos_id)
        self.eos_id = self._in_range("eos", spec.eos_id)
        self.end_ids = self._end_ids(spec)
        self._promote()
        self.warnings = tuple(self._warnings)

    def __len__(self) -> int:
        return len(self.texts)

    def kind(self, token: int) -> int:
        """Return the kind of a token, one of `TokenType` in sound files."""
        return self._kinds.get(token, TokenType.NORMAL)

    def is_control(self, token: int) -> bool:
        """Tell whether a token steers the model and is never shown."""
        return self.kind(token) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def control_tokens(self) -> dict[str, int]:
        """Return text → id of all control tokens."""
        found = self._with_kind(TokenType.CONTROL, TokenType.UNKNOWN)
        return {self.texts[i]: i for i in found if self.texts[i]}

    def user_defined_tokens(self) -> dict[str, int]:
        """Return text → id of the tokens that are recognised in any text."""
        found = self._with_kind(TokenType.USER_DEFINED)
        return {self.texts[i]: i for i in found if self.texts[i]}

    def _with_kind(self, *kinds: TokenType) -> Iterator[int]:
        return (i for i, kind in self._kinds.items() if kind in kinds)

    def _check_lengths(self, n_types: int) -> None:
        if not self.texts:
            raise GgufError("tokenizer.ggml.tokens is empty: the file has no vocabulary.")
        if n_types not in (0, len(self.texts)):
            raise GgufError(
                f"tokenizer.ggml.token_type has {n_types:,} entries, "
                f"but tokenizer.ggml.tokens has {len(self.texts):,}."
            )

    def _in_range(self, name: str, token: int | None) -> int | None:
        if token is None or 0 <= token < len(self.texts):
            return token
        self._warnings.append(
            f"tokenizer.ggml.{name}_token_id is {token}, outside the vocabulary of "
            f"{len(self.texts):,} tokens, and is ignored."
        )
        return None

    def _end_ids(self, spec: TokenizerSpec) -> frozenset[int]:
        named = {
            self.eos_id,
            self._in_range("eot", spec.eot_id),
            self._in_range("eom", spec.eom_id),
        }
        ends = {i for i in named if i is not None}
        ends.update(self.ids[text] for text in _END_TEXTS if text in self.ids)
        if "<|return|>" in self.ids and "<|call|>" in self.ids:
            # gpt-oss closes every message of a turn with <|end|> and goes on.
            ends.discard(self.ids.get("<|end|>", -1))
        if not ends:
            self._warnings.append(
                "The vocabulary names no end token: answers end at the token limit only."
            )
        return frozenset(ends)

    def _promote(self) -> None:
        for text in _CONTROL_TEXTS:
            if text in self.ids:
                self._kinds[self.ids[text]] = TokenType.CONTROL
