"""What a chat template may use: a time limit that any Python code obeys, and text budgets."""

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

MAX_COUNT = 100_000
"""Largest width, repeat count of list items, and length of a list a template may ask for."""

_MAX_INTEGER_BITS = 10_000
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\*|\d{5,}|\d*\.(?:\*|\d{5,}))")
_WIDE_BRACES = re.compile(r"\{[^{}]*(?:\d{5,}|:[^{}]*\{)")


class LimitReachedError(Exception):
    """A template asked for more than it may have; the message says of what."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What rendering once may use.

    `seconds` of wall time, `output` characters of result or of any text on the way, and
    `built` characters of all texts that operators and filters make on the way.
    """

    seconds: float = 2.0
    output: int = 16 * 1024 * 1024
    built: int = 256 * 1024 * 1024


class TextBudget:
    """Counts the characters one rendering builds."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._built = 0

    def take(self, n_characters: int) -> None:
        """Account for a text about to be built; LimitReachedError when it is too much."""
        self._built += n_characters
        if n_characters > self._limits.output:
            raise LimitReachedError(
                f"it builds a text of {n_characters:,} characters, "
                f"more than {self._limits.output:,}"
            )
        if self._built > self._limits.built:
            raise LimitReachedError(
                f"it builds more than {self._limits.built:,} characters of text"
            )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise LimitReachedError in this thread when the `with` block runs longer than `seconds`.

    A trace function looks at the clock on every line of Python entered inside the block, so
    loops without output are stopped too; one operation in C is not. The trace function that
    was set before is set again afterwards.
    """
    end = time.monotonic() + seconds

    def trace(_frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > end:
            raise LimitReachedError(f"it runs longer than {seconds:g} s")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def check_count(count: object) -> None:
    """Refuse a width or a number of items above `MAX_COUNT`; what is no integer passes."""
    if isinstance(count, int) and count > MAX_COUNT:
        raise LimitReachedError(f"it asks for {count:,} of something, more than {MAX_COUNT:,}")


def check_integer_bits(bits: int) -> None:
    """Refuse integers that grow beyond any use."""
    if bits > _MAX_INTEGER_BITS:
        raise LimitReachedError(f"it computes an integer of more than {_MAX_INTEGER_BITS:,} bits")


def check_format(text: str) -> None:
    """Refuse `%` and `{}` formats whose widths have five digits or come from arguments."""
    if _WIDE_PERCENT.search(text) or _WIDE_BRACES.search(text):
        raise LimitReachedError("it formats with a width that is too large or computed")


def check_weight(value: object) -> None:
    """Refuse containers that expand to more than `MAX_COUNT` x 10 values.

    A list that holds another one twice, again and again, is small in memory, but there is no
    end to writing or comparing it.
    """
    left = MAX_COUNT * 10
    pending = [value]
    while pending:
        item = pending.pop()
        left -= 1
        if left < 0:
            raise LimitReachedError(f"it makes a container of more than {MAX_COUNT * 10:,} values")
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            pending.extend(item)
