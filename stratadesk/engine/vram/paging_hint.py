"""The hint "probably paging": the same work takes twice as long, and nothing else changed.

Where a full card is paged to RAM, nothing reports it. So the time of a decode step is compared
with the engine's own best at the same context, as long as the step reads as much over the link
and the setting is the same.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from stratadesk.units import MIB

CONTEXT_STEP = 2048
"""Contexts in the same piece of this many tokens are the same context."""
WEIGHT = 0.1
"""How much a step moves the moving averages."""
LONGEST = 4.0
"""A step counts as at most this many times the average: one hiccup proves nothing."""
WARM_UP = 16
"""Steps before the averages of a context mean anything."""
SLOW, NORMAL = 2.0, 1.5
"""The hint comes at the first multiple of the best time and goes below the second."""
FLAT_CONTEXT = 8192
"""Attention over this many tokens costs at most as much as the rest of a step."""
MORE_WORK, MORE_BYTES = 1.25, 4 * MIB
"""Up to both, the bytes read over the link count as the same work."""


@dataclass(frozen=True, slots=True)
class PagingHint:
    """The average step, `seconds`, is `times` as long as the best at this context was."""

    seconds: float
    times: float

    @property
    def sentence(self) -> str:
        """What the screen says."""
        return (
            f"Probably paging: a token takes {self.times:.1f} times as long as it did at this "
            "context, and the work is the same."
        )


@dataclass(slots=True)
class _Average:
    """Moving averages; `steps` counts those at the same context."""

    seconds: float
    streamed: float
    steps: int = 0

    def add(self, seconds: float, streamed: int) -> None:
        capped = min(seconds, LONGEST * self.seconds)
        self.seconds += WEIGHT * (capped - self.seconds)
        self.streamed += WEIGHT * (streamed - self.streamed)
        self.steps += 1


@dataclass(frozen=True, slots=True)
class _Best:
    seconds: float
    streamed: float
    context: int

    def expected(self, context: int) -> float:
        """The longest that such a step takes at `context` tokens."""
        return self.seconds * max(1.0, (context + FLAT_CONTEXT) / (self.context + FLAT_CONTEXT))

    def is_same_work(self, streamed: float) -> bool:
        return streamed <= max(self.streamed * MORE_WORK, self.streamed + MORE_BYTES)


class PagingDetector:
    """Watches decode steps, one call of `note` each."""

    def __init__(self) -> None:
        self._setting: Hashable = None
        self._best: dict[int, _Best] = {}
        self._average: _Average | None = None
        self._piece = -1
        self._raised_by: _Best | None = None

    def note(
        self, context: int, seconds: float, streamed: int, setting: Hashable
    ) -> PagingHint | None:
        """Take a step and return the hint while it holds.

        `context` in tokens, `streamed` bytes read over the link. `setting` is everything else
        that decides the time of a step: slots, window, power state; a new one starts anew.
        """
        if setting != self._setting:
            self._start(setting)
        average = self._averaged(context // CONTEXT_STEP, seconds, streamed)
        if average.steps >= WARM_UP:
            self._judge(average, context)
        if self._raised_by is None:
            return None
        times = average.seconds / self._raised_by.expected(context)
        return PagingHint(average.seconds, times)

    def _start(self, setting: Hashable) -> None:
        self._setting = setting
        self._best.clear()
        self._average = self._raised_by = None

    def _averaged(self, piece: int, seconds: float, streamed: int) -> _Average:
        if self._average is None:
            self._average = _Average(seconds, streamed)
        elif piece != self._piece:
            self._average.steps = 0
        self._piece = piece
        self._average.add(seconds, streamed)
        return self._average

    def _judge(self, average: _Average, context: int) -> None:
        """Raise or clear the hint. While it stands no best is learnt: it would be a slow one."""
        best = self._raised_by or self._best.get(self._piece)
        if best is None or (self._raised_by is None and average.seconds < best.seconds):
            self._best[self._piece] = _Best(average.seconds, average.streamed, context)
            return
        times = average.seconds / best.expected(context)
        same = best.is_same_work(average.streamed)
        if times >= SLOW and same:
            self._raised_by = best
        elif times < NORMAL or not same:
            self._raised_by = None
