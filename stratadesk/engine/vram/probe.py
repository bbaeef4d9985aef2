"""Samples video memory two to four times a second, when it is asked, on the caller's thread."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.engine.vram.recording import Recorder
from stratadesk.engine.vram.states import MemoryState, MemoryStatus, MemoryWatch

INTERVAL_S = 0.5
"""Seconds between two samples."""
HURRY_S = 0.25
"""Seconds between two samples while there is an alarm or a phase has just changed."""

log = logging.getLogger(__name__)


class Reader(Protocol):
    """What looks at the card: `LiveReader`, or a test's own."""

    def read(self, at: float, *, urgent: bool = False) -> MemoryReading:
        """Read all sources; `at` is now in seconds. `urgent` asks for the programs too."""

    def close(self) -> None:
        """Let go of the drivers."""


class VramProbe(Protocol):
    """What the engine loop asks: `Probe`, or `ReplayProbe` in its place."""

    @property
    def reserve(self) -> int:
        """The bytes to be kept free."""

    def seconds_left(self) -> float | None:
        """Seconds until a sample is due, never less than 0; None when no more will come."""

    def take_if_due(self) -> MemoryStatus | None:
        """Take a sample if one is due; None if not."""

    def status(self) -> MemoryStatus:
        """The status now, without taking a sample."""

    def close(self) -> None:
        """Let go of drivers and files."""


class Probe:
    """Reads the card, runs the state machine, and records if asked to.

    It has no thread of its own. The first sample is due at once. `reserve` is in bytes.
    """

    def __init__(
        self,
        reader: Reader,
        reserve: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        recorder: Recorder | None = None,
    ) -> None:
        self._reader = reader
        self._watch = MemoryWatch(reserve)
        self._clock = clock
        self._recorder = recorder
        self._taken_at: float | None = None
        self._hurry_until = clock()

    @property
    def reserve(self) -> int:
        """The bytes to be kept free; a change counts from the next sample on."""
        return self._watch.reserve

    @reserve.setter
    def reserve(self, n_bytes: int) -> None:
        self._watch.reserve = n_bytes

    def hurry(self, seconds: float) -> None:
        """Sample four times a second for the next `seconds`: a phase is changing."""
        self._hurry_until = max(self._hurry_until, self._clock() + seconds)

    def seconds_left(self) -> float:
        """Return the seconds until a sample is due, never less than 0."""
        if self._taken_at is None:
            return 0.0
        now = self._clock()
        hurried = now < self._hurry_until or self._is_alarmed(now)
        return max(0.0, self._taken_at + (HURRY_S if hurried else INTERVAL_S) - now)

    def take_if_due(self) -> MemoryStatus | None:
        """Return the status of a fresh sample, or None when none is due."""
        return None if self.seconds_left() > 0 else self.take()

    def take(self) -> MemoryStatus:
        """Take a sample now."""
        now = self._clock()
        self._taken_at = now
        reading = self._reader.read(now, urgent=self._is_alarmed(now))
        status = self._watch.push(reading)
        self._record(reading, status.state)
        return status

    def status(self) -> MemoryStatus:
        """The status now, without taking a sample; it may have become lost meanwhile."""
        return self._watch.status(self._clock())

    def close(self) -> None:
        """Let go of the drivers and of the recording."""
        self._reader.close()
        if self._recorder is not None:
            self._recorder.close()

    def _is_alarmed(self, now: float) -> bool:
        return self._watch.status(now).state in (MemoryState.LOW, MemoryState.ZERO)

    def _record(self, reading: MemoryReading, state: MemoryState) -> None:
        """Record the sample; a full disk ends the recording, not the answer."""
        if self._recorder is None:
            return
        try:
            self._recorder.write(reading, self.reserve, state)
        except OSError as error:
            log.warning("recording of video memory ended: %s", error)
            self._recorder.close()
            self._recorder = None
