"""How urgent the shortage of video memory is: ok, low, zero, and lost without readings.

Rules: below the reserve is low at once. 0 MiB in two samples in a row is zero; a sample without
a figure does not come between them. Either clears only when every sample of 5 seconds kept the
reserve. Nothing is averaged. When nothing has been known for more than 5 seconds the state is
lost; what it was before comes back with the next known figure, since no figure of those seconds
kept the reserve.
"""

from dataclasses import dataclass
from enum import StrEnum

from stratadesk.engine.vram.readings import Growth, MemoryReading, Source
from stratadesk.units import MIB

CALM_S = 5.0
"""How long the reserve must be kept before an alarm clears."""
STALE_S = 5.0
"""A figure older than this decides nothing."""
ZEROS = 2
"""Samples of 0 MiB in a row that raise the alarm."""


class MemoryState(StrEnum):
    """`LOW`: less free than the reserve. `ZERO`: nothing free. `LOST`: not known."""

    OK = "ok"
    LOW = "low"
    ZERO = "zero"
    LOST = "lost"


def is_zero(headroom: int) -> bool:
    """Whether a figure in bytes is 0 MiB, which is how drivers and screens write it."""
    return headroom < MIB


def keeps(headroom: int, reserve: int) -> bool:
    """Whether a headroom keeps the reserve; 0 MiB keeps none, not even a reserve of 0."""
    return headroom >= reserve and not is_zero(headroom)


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The state and all that a screen says about it; sizes in bytes, times in seconds.

    `headroom` and `source` are of the last reading, None when it has no figure. `age` is that of
    the last known figure, None before the first. `kept_for` is how long the samples so far show
    the reserve kept. `grew` is the program that grew most since the alarm began.
    """

    state: MemoryState
    reserve: int
    reading: MemoryReading | None = None
    headroom: int | None = None
    source: Source | None = None
    age: float | None = None
    kept_for: float = 0.0
    grew: Growth | None = None

    @property
    def reserve_kept(self) -> bool:
        """Whether the last reading keeps the reserve."""
        return self.headroom is not None and keeps(self.headroom, self.reserve)


class MemoryWatch:
    """The state machine. Readings go in with `push`; `reserve`, in bytes, may change any time.

    Readings alone decide: `status` between two of them tells of loss and changes nothing.
    """

    def __init__(self, reserve: int) -> None:
        self.reserve = reserve
        self._alarm = MemoryState.OK
        self._zeros = 0
        self._kept_since: float | None = None
        self._known_at: float | None = None
        self._reading: MemoryReading | None = None
        self._grew: Growth | None = None

    def push(self, reading: MemoryReading) -> MemoryStatus:
        """Take a new reading and return the status at its time."""
        self._reading = reading
        headroom = reading.headroom
        if headroom is None:
            self._kept_since = None
        else:
            self._judge(reading.at, headroom)
        self._remember_growth(reading.grew)
        return self.status(reading.at)

    def status(self, now: float) -> MemoryStatus:
        """The status at `now` seconds of the readings' clock."""
        age = None if self._known_at is None else max(0.0, now - self._known_at)
        lost = age is None or age > STALE_S
        deciding = self._reading.deciding if self._reading else None
        return MemoryStatus(
            state=MemoryState.LOST if lost else self._alarm,
            reserve=self.reserve,
            reading=self._reading,
            headroom=deciding.headroom if deciding else None,
            source=deciding.source if deciding else None,
            age=age,
            kept_for=0.0 if lost else self._kept_for(),
            grew=self._grew,
        )

    def _kept_for(self) -> float:
        """Seconds between the first and the last figure of those that kept the reserve."""
        if self._kept_since is None or self._known_at is None:
            return 0.0
        return self._known_at - self._kept_since

    def _judge(self, at: float, headroom: int) -> None:
        self._zeros = self._zeros + 1 if is_zero(headroom) else 0
        if not keeps(headroom, self.reserve):
            self._kept_since = None
        elif self._kept_since is None or not self._follows(at):
            self._kept_since = at
        self._known_at = at
        self._alarm = self._next_alarm(at)

    def _follows(self, at: float) -> bool:
        """Whether no more than 5 s passed since the last figure: a gap proves nothing."""
        return self._known_at is not None and 0 <= at - self._known_at <= STALE_S

    def _next_alarm(self, at: float) -> MemoryState:
        if self._zeros >= ZEROS:
            return MemoryState.ZERO
        if self._kept_since is None:
            return MemoryState.ZERO if self._alarm is MemoryState.ZERO else MemoryState.LOW
        return MemoryState.OK if at - self._kept_since >= CALM_S else self._alarm

    def _remember_growth(self, grew: Growth | None) -> None:
        if self._alarm is MemoryState.OK:
            self._grew = None
        elif grew and (self._grew is None or grew.n_bytes >= self._grew.n_bytes):
            self._grew = grew
