"""How much RAM this process and the machine use, read at most once per interval."""

import time
from collections.abc import Callable

import psutil

from stratadesk.engine.events import MemorySample

INTERVAL_S = 1.0
"""Seconds between two samples."""


def sample_memory() -> MemorySample:
    """Read this process's resident set and the machine's available and total RAM, in bytes.

    Linux counts the pages of a mapped model as available, since it can drop them. They are in the
    resident set, too, and would leave nothing for other programs, so they are not available here.
    """
    machine, own = psutil.virtual_memory(), psutil.Process().memory_info()
    return MemorySample(
        resident=own.rss,
        available=max(machine.available - getattr(own, "shared", 0), 0),
        total=machine.total,
    )


class MemoryProbe:
    """Says when a sample is due and takes it; the first is due at once.

    `read` takes a sample and `clock` tells seconds; both can be replaced in tests.
    """

    def __init__(
        self,
        read: Callable[[], MemorySample] = sample_memory,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._read = read
        self._clock = clock
        self._interval_s = interval_s
        self._due_at = clock()

    def seconds_left(self) -> float:
        """Return the seconds until a sample is due, never less than 0."""
        return max(0.0, self._due_at - self._clock())

    def take_if_due(self) -> MemorySample | None:
        """Return a fresh sample, or None when the last one is younger than the interval."""
        now = self._clock()
        if now < self._due_at:
            return None
        self._due_at = now + self._interval_s
        return self._read()
