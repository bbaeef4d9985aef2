"""What a key has done, said for a while where the keys stand."""

from collections.abc import Callable
from typing import Protocol

from stratadesk.tui import moment

SHOWN_S = 5.0


class Stoppable(Protocol):
    """A timer that has been started."""

    def stop(self) -> None:
        """Do not call back after all."""


Later = Callable[[float, Callable[[], None]], Stoppable]
"""Calls back after a delay in seconds."""


class PassingWords:
    """Words that go away by themselves; `changed` is called when they come and when they go."""

    def __init__(self, later: Later, changed: Callable[[], None]) -> None:
        self._later = later
        self._changed = changed
        self._words = ""
        self._until = float("-inf")
        self._timer: Stoppable | None = None

    @property
    def words(self) -> str:
        """What is to be said now, nothing when its time is over."""
        return self._words if moment.now() < self._until else ""

    def say(self, words: str) -> None:
        """Say `words` for a while, in place of what was said before."""
        self._words, self._until = words, moment.now() + SHOWN_S
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._later(SHOWN_S, self._changed)
        self._changed()

    def hush(self) -> None:
        """Say it no more: another key has been pressed, or it is not so."""
        self._until = float("-inf")
