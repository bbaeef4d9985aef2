"""Every setting a flag can change, described once: names, default, allowed range and help.

`--help` is written from these tables, and the command line builds `EngineSettings` and
`SamplingSettings` (`engine/commands.py`) from what was given.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

LONGEST_TEXT = 4096
"""Characters of a value that is text; a file path of the systems it runs on has no more."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BUT_LINES = re.compile(rf"(?![\t\n\r]){_CONTROLS.pattern}")

MOST_TOKENS = 2**31 - 1
"""Tokens are counted in 32 bits."""

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting: the field it fills, its flags, and what may be written after them.

    `aliases` are llama.cpp's names of the same thing, accepted but not listed. `kind` converts
    the text. Where there are `choices`, it is one of them or of what `others` returns, which is
    asked only when it is none of them. `low` and `high` are inclusive bounds of a number. `unset`
    is an extra number that stands for `default`, as llama.cpp's -1 does, and `unset_means` says
    what that is. `words` are accepted beside numbers. Text has no control characters, but with
    `lines` it may have line breaks and tabs. A `repeated` flag may be given several times and
    fills a tuple. A flag of kind bool has a `--no-` twin.
    """

    field: str
    names: tuple[str, ...]
    kind: type[str] | type[int] | type[float] | type[bool]
    default: Value
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    others: Callable[[], tuple[str, ...]] | None = None
    low: float | None = None
    high: float | None = None
    unset: int | None = None
    unset_means: str = ""
    words: tuple[str, ...] = ()
    repeated: bool = False
    lines: bool = False

    def parse(self, text: str) -> Value:
        """Convert `text`; raises ValueError whose message says what is allowed."""
        if text in self.words:
            return text
        try:
            value = _SWITCH[text.lower()] if self.kind is bool else self.kind(text)
        except (ValueError, KeyError):
            raise ValueError(self.allowed()) from None
        if isinstance(value, str):
            return self._checked_choice(value) if self.choices else self._checked_text(value)
        if value == self.unset:
            return self.default
        above = self.low is None or value >= self.low
        below = self.high is None or value <= self.high
        if not (above and below):
            raise ValueError(self.allowed())
        return value

    def allowed(self) -> str:
        """Say in words which values are allowed."""
        if self.choices:
            return f"one of {', '.join(self._all_choices())}"
        allowed = " or ".join((*self.words, _NOUNS[self.kind]))
        if self.low is not None and self.high is None:
            allowed += f", {_figure(self.low)} or more"
        elif self.low is not None and self.high is not None:
            allowed += f" from {_figure(self.low)} to {_figure(self.high)}"
        return allowed if self.unset is None else f"{allowed}, or {self.unset} {self.unset_means}"

    def _checked_text(self, text: str) -> str:
        if not text.strip() and not (self.lines and text):
            raise ValueError("a text that says something")
        if len(text) > LONGEST_TEXT:
            raise ValueError(f"a text of at most {LONGEST_TEXT:,} characters")
        if (_BUT_LINES if self.lines else _CONTROLS).search(text):
            raise ValueError("a text without control characters")
        return text

    def _checked_choice(self, text: str) -> str:
        if text not in self.choices and text not in self._all_choices():
            raise ValueError(self.allowed())
        return text

    def _all_choices(self) -> tuple[str, ...]:
        return self.choices if self.others is None else (*self.choices, *self.others())


def quoted(value: object) -> str:
    r"""Write a value that is refused for a sentence: escaped, and no longer than a line.

    >>> quoted("\x1b[1m"), len(quoted("a" * 1_000_000))
    ("'\\x1b[1m'", 80)
    """
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:78]}…{text[-1]}"


def _figure(number: float) -> str:
    """Write a bound in full, without an exponent.

    >>> _figure(1e7), _figure(0.01), _figure(2.0**64)
    ('10000000', '0.01', '18446744073709551616')
    """
    return f"{int(number)}" if number == int(number) else f"{number:g}"


_NOUNS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_SWITCH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}

ENGINE_FLAGS = (
    Flag(
        "device",
        ("--device",),
        str,
        "auto",
        "where to compute: cuda puts all of a model on an NVIDIA card, auto is the CPU (host)",
        choices=("auto", "cuda", "host"),
    ),
    Flag(
        "max_context",
        ("-c", "--max-context"),
        int,
        0,
        "tokens the context holds; 0 takes the model's own length, at most 32,768, or 4,096 where "
        "cuda computes",
        aliases=("--ctx-size",),
        low=0,
        high=MOST_TOKENS,
    ),
    Flag(
        "kv_format",
        ("--kv",),
        str,
        "f16",
        "how keys and values are kept in the KV cache",
        choices=("f32", "f16", "q8_0"),
    ),
)

SAMPLING_FLAGS = (
    Flag(
        "temperature",
        ("--temp",),
        float,
        0.8,
        "how freely the next token is drawn; 0 always takes the likeliest",
        low=0,
        high=100,
    ),
    Flag(
        "top_k",
        ("--top-k",),
        int,
        40,
        "keep the K likeliest tokens; 0 keeps all",
        low=0,
        high=MOST_TOKENS,
    ),
    Flag(
        "top_p",
        ("--top-p",),
        float,
        0.95,
        "keep the likeliest tokens that together have this probability; 1 keeps all",
        low=0,
        high=1,
    ),
    Flag(
        "min_p",
        ("--min-p",),
        float,
        0.05,
        "drop tokens below this share of the likeliest one's probability; 0 drops none",
        low=0,
        high=1,
    ),
    Flag(
        "repeat_penalty",
        ("--repeat-penalty",),
        float,
        1.0,
        "make tokens seen lately less likely by this factor; 1 is off",
        low=0.01,
        high=100,
    ),
    Flag(
        "presence_penalty",
        ("--presence-penalty",),
        float,
        0.0,
        "take this from the logit of every token seen lately; 0 is off",
        low=-100,
        high=100,
    ),
    Flag(
        "frequency_penalty",
        ("--frequency-penalty",),
        float,
        0.0,
        "take this from a token's logit for each time it was seen lately; 0 is off",
        low=-100,
        high=100,
    ),
    Flag(
        "penalty_last_n",
        ("--repeat-last-n",),
        int,
        64,
        "how many tokens back the penalties look",
        low=0,
        high=MOST_TOKENS,
    ),
    Flag(
        "seed",
        ("-s", "--seed"),
        int,
        None,
        "equal seeds give equal answers; -1 draws a fresh one",
        low=0,
        high=2**64 - 1,
        unset=-1,
        unset_means="for a fresh one",
    ),
    Flag(
        "stop",
        ("--stop",),
        str,
        None,
        "end the answer before this text; may be repeated",
        aliases=("-r", "--reverse-prompt"),
        repeated=True,
        lines=True,
    ),
)

MAX_TOKENS = Flag(
    "max_tokens",
    ("-n", "--predict"),
    int,
    0,
    "tokens to generate at most; 0 goes on until the context is full",
    aliases=("--n-predict",),
    low=0,
    high=MOST_TOKENS,
    unset=-1,
    unset_means="for no limit",
)


def _engine_flag(field: str) -> Flag:
    return next(flag for flag in ENGINE_FLAGS if flag.field == field)


LOGITS_FLAGS = (
    Flag(
        "chunk",
        ("--chunk",),
        int,
        512,
        "tokens computed at once; 0 takes all",
        aliases=("--prefill", "-ub", "--ubatch-size"),
        low=0,
        high=MOST_TOKENS,
    ),
    replace(_engine_flag("kv_format"), default="f32"),
    _engine_flag("device"),
)
"""For computing logits: a KV cache that rounds nothing."""
