"""A recording played again: the same readings, reserves and states, in place of a card."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from stratadesk.engine.vram.recording import Recording, Sample
from stratadesk.engine.vram.states import MemoryStatus, MemoryWatch

SESSION_GAP_S = 1.0
"""Pause between two sessions of one recording, whose clocks have nothing in common."""


def replay(recording: Recording) -> Iterator[MemoryStatus]:
    """Push every sample through a fresh state machine, one per session; yield each status."""
    watch = MemoryWatch(0)
    for sample in recording.samples:
        watch = MemoryWatch(sample.reserve) if sample.starts else watch
        watch.reserve = sample.reserve
        yield watch.push(sample.reading)


class ReplayProbe:
    """Stands in for a `Probe`: gives the samples when they were given, counted from its start.

    Each reading goes through the state machine, however seldom it is asked. After the last one
    there are no more, so the state becomes lost as it does without a driver.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples = _timed(recording.samples, clock())
        self._next = next(self._samples, None)
        self._watch = MemoryWatch(0)

    @property
    def reserve(self) -> int:
        """The reserve of the last sample given, in bytes."""
        return self._watch.reserve

    def seconds_left(self) -> float | None:
        """Seconds until the next sample, never less than 0; None after the last one."""
        return None if self._next is None else max(0.0, self._next.reading.at - self._clock())

    def take_if_due(self) -> MemoryStatus | None:
        """Push all samples that are due; return the status, or None when none was due."""
        if self._next is None or self._next.reading.at > self._clock():
            return None
        while self._next is not None and self._next.reading.at <= self._clock():
            status = self._push(self._next)
            self._next = next(self._samples, None)
        return status

    def status(self) -> MemoryStatus:
        """The status now, without taking a sample."""
        return self._watch.status(self._clock())

    def close(self) -> None:
        """Nothing to let go of."""

    def _push(self, sample: Sample) -> MemoryStatus:
        if sample.starts:
            self._watch = MemoryWatch(sample.reserve)
        self._watch.reserve = sample.reserve
        return self._watch.push(sample.reading)


def _timed(samples: tuple[Sample, ...], start: float) -> Iterator[Sample]:
    """The samples with their times moved, so that the first one is due at `start` seconds."""
    shift, last = 0.0, start
    for number, sample in enumerate(samples):
        at = sample.reading.at
        if number == 0:
            shift = start - at
        elif sample.starts or at + shift < last:
            shift = last + SESSION_GAP_S - at
        last = at + shift
        yield replace(sample, reading=replace(sample.reading, at=last))
