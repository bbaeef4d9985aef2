"""How text is cut into pieces before byte-level BPE, by the name in `tokenizer.ggml.pre`.

The expressions are those of the published tokenizers. Contractions spell out both cases
instead of using a case-insensitive group, because Unicode case folding would let U+017F
(a long s) pass for an s, which llama.cpp does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stratadesk.errors import UnsupportedModelError

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BREAKS}"
)
_WORDS_THEN_DIGITS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}%s"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BREAKS}"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way of cutting text into pieces.

    `pattern` matches one piece; what lies between two matches is a piece of its own.
    `whole_pieces`: a piece that is a token as it stands is not merged step by step.
    `add_bos`: whether a prompt starts with the BOS token when the header does not say.
    """

    pattern: str
    whole_pieces: bool = False
    add_bos: bool = False


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "qwen35": PreTokenizer(_QWEN35),
        "qwen2": PreTokenizer(_WORDS_THEN_DIGITS % ""),
        "gpt-2": PreTokenizer(_GPT2),
        "olmo": PreTokenizer(_GPT2),
        "llama-bpe": PreTokenizer(_WORDS_THEN_DIGITS % "{1,3}", whole_pieces=True, add_bos=True),
        "glm4": PreTokenizer(_WORDS_THEN_DIGITS % "{1,3}", whole_pieces=True),
    }
)


def pre_tokenizer_by_name(name: str) -> PreTokenizer:
    """Return the pre-tokenizer called `name`; UnsupportedModelError lists those there are."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        known = ", ".join(PRE_TOKENIZERS)
        raise UnsupportedModelError(
            f"The pre-tokenizer {name!r} of this model is not supported (supported: {known})."
        )
    return found
