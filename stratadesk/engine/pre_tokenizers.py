"""How text is cut into pieces before byte-level BPE, by the name in `tokenizer.ggml.pre`.

The expressions are those of the published tokenizers. Contractions spell out both cases
instead of using a case-insensitive group, because Unicode case folding would let U+017F
(a long s) pass for an s, which llama.cpp does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stratadesk.engine.cased_letters import CASED_LETTERS
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
# llama.cpp's approximation of gpt-4o: upper case is any letter but a to z, and so the other way.
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BREAKS}"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_DEEPSEEK = (
    r"[\r\n]",
    rf"\s?[{CASED_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}+",
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way of cutting text into pieces.

    `pattern` matches one piece; what lies between two matches is a piece of its own. Each
    expression of `then` cuts all pieces left by the one before in the same way.
    `whole_pieces`: a piece that is a token as it stands is not merged step by step.
    `add_bos`: whether a prompt starts with the BOS token when the header does not say.
    """

    pattern: str
    whole_pieces: bool = False
    add_bos: bool = False
    then: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """All expressions in the order in which they cut."""
        return self.pattern, *self.then


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "qwen35": PreTokenizer(_QWEN35),
        "qwen2": PreTokenizer(_WORDS_THEN_DIGITS % ""),
        "gpt-2": PreTokenizer(_GPT2),
        "olmo": PreTokenizer(_GPT2),
        "llama-bpe": PreTokenizer(_WORDS_THEN_DIGITS % "{1,3}", whole_pieces=True, add_bos=True),
        "gpt-4o": PreTokenizer(_GPT4O),
        "deepseek-llm": PreTokenizer(_DEEPSEEK[0], then=_DEEPSEEK[1:]),
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
