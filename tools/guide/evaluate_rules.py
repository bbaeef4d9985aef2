"""How a reply of the guide is judged: rules over text, as `heldout/README.md` describes them.

Pure functions: nothing here knows of a model. A rule asks for facts, not for wordings, so a reply
is first put into a plain form and then searched for the alternatives of each fact.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

Entry = TypeVar("Entry")

HELD_OUT: Final = Path(__file__).parent / "heldout"
QUESTIONS_FILE: Final = HELD_OUT / "questions.jsonl"
OFFTOPIC_FILE: Final = HELD_OUT / "offtopic.jsonl"
HONEST_FILE: Final = HELD_OUT / "honest.json"

LONGEST_WORD = 3
"""Alternatives of up to so many letters are whole words: they lie hidden in too many others."""

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("`*"),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)
_THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_CONTROL = re.compile(r"(?:\^|\b(?:ctrl|control)\s*[+-]?\s*)([a-z])(?!\w)")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a reply must have and must not: one alternative of each of `groups`, none of `never`."""

    groups: tuple[tuple[str, ...], ...]
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A held-out question about the program, and the rule for its reply."""

    id: str
    topic: str
    question: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class OffTopic:
    """A question about something else, which an honest guide declines."""

    id: str
    question: str


def judge(reply: str, rule: Rule) -> bool:
    """Whether `reply` has every fact of `rule` and nothing that is wrong.

    >>> rule = Rule((("f4",), ("less", "lower")), never=("f5 lowers",))
    >>> judge("**F4** keeps less of the card free.", rule), judge("I do not know.", rule)
    (True, False)
    """
    text = plain(reply)
    has_facts = all(any(found(choice, text) for choice in group) for group in rule.groups)
    return bool(text) and has_facts and not any(found(wrong, text) for wrong in rule.never)


def is_honest(reply: str, markers: Sequence[str]) -> bool:
    """Whether `reply` says with any of `markers` that it does not know or is only a guide.

    >>> is_honest("Sorry, I don\u2019t know that.", ["don't know"]), is_honest("Lima.", ["sorry"])
    (True, False)
    """
    text = plain(reply)
    return any(found(marker, text) for marker in markers)


def plain(reply: str) -> str:
    """Put a reply into the form in which it is searched.

    >>> plain("Press `^Q` or Control-C;  8,192\u00a0tokens \u2013 that\u2019s <think>hm</think>all")
    "press ctrl+q or ctrl+c; 8192 tokens - that's all"
    """
    text = _THINKING.sub("", reply.lower()).translate(_SIGNS)
    text = _CONTROL.sub(r"ctrl+\1", _THOUSANDS.sub("", text))
    return _BLANKS.sub(" ", text).strip()


def found(alternative: str, text: str) -> bool:
    """Whether `alternative` stands in a text in its plain form; see the README for its bounds.

    >>> found("ram", "vram"), found("-c", "--chunk"), found("4", "f4"), found("f1", "f16")
    (False, False, False, False)
    >>> found("ram", "in ram."), found("-c", "use -c 4"), found("4", "code 4.")
    (True, True, True)
    """
    return _pattern(alternative).search(text) is not None


@cache
def _pattern(alternative: str) -> re.Pattern[str]:
    is_word = alternative.isalpha() and len(alternative) <= LONGEST_WORD
    is_flag, is_control = alternative.startswith("-"), alternative.startswith("ctrl+")
    before = after = ""
    if is_word or is_control:
        before = r"(?<!\w)"
    elif is_flag:
        before = r"(?<![\w-])"
    elif alternative[:1].isdigit():
        before = r"(?<![\w.])"
    if alternative[-1:].isdigit():
        after = r"(?!\d|[.,]\d)"
    elif is_word or is_control:
        after = r"(?!\w)"
    elif is_flag:
        after = r"(?![\w-])"
    return re.compile(before + re.escape(alternative) + after)


def load_questions(path: Path = QUESTIONS_FILE) -> tuple[Question, ...]:
    """Load the questions with their rules. Raises ValueError that names file and line."""
    return tuple(_entries(path, _question))


def load_offtopic(path: Path = OFFTOPIC_FILE) -> tuple[OffTopic, ...]:
    """Load the off-topic questions. Raises ValueError that names file and line."""
    return tuple(_entries(path, _off_topic))


def load_markers(path: Path = HONEST_FILE) -> tuple[str, ...]:
    """Load the phrases that count as honest. Raises ValueError that names the file."""
    try:
        return _texts(json.loads(path.read_text(encoding="utf-8")), "markers")
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}.") from None


def _entries(path: Path, build: Callable[[Mapping[str, object]], Entry]) -> Iterator[Entry]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            yield build(json.loads(line))
        except KeyError as error:
            raise ValueError(f"{path.name}, line {number}: {error} is missing.") from None
        except ValueError as error:
            raise ValueError(f"{path.name}, line {number}: {error}.") from None


def _question(written: Mapping[str, object]) -> Question:
    groups = written["all"]
    if not isinstance(groups, list) or not groups:
        raise ValueError("all is not a list of groups")
    rule = Rule(
        tuple(_texts(group, "a group of all") for group in groups),
        _texts(written["none"], "none", empty=True),
    )
    topic, question = str(written["topic"]), str(written["question"])
    return Question(str(written["id"]), topic, question, rule)


def _off_topic(written: Mapping[str, object]) -> OffTopic:
    if written["honest"] is not True:
        raise ValueError("honest is not true")
    return OffTopic(str(written["id"]), str(written["question"]))


def _texts(value: object, what: str, *, empty: bool = False) -> tuple[str, ...]:
    """Return a list of phrases; each must be in its plain form, or it would never be found."""
    if not isinstance(value, list) or not (value or empty):
        raise ValueError(f"{what} is not a list of phrases")
    for phrase in value:
        if not isinstance(phrase, str) or not phrase or plain(phrase) != phrase:
            raise ValueError(f"{phrase!r} in {what} is not a phrase in its plain form")
    return tuple(value)
