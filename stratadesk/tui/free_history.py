"""How much of the card was free in the last minute."""

from dataclasses import dataclass

from stratadesk.engine.vram.states import MemoryStatus

SPAN_S = 60.0


@dataclass(frozen=True, slots=True)
class FreePoint:
    """`free` bytes at `at` seconds, None where no source told."""

    at: float
    free: int | None


@dataclass(frozen=True, slots=True)
class FreeHistory:
    """Points of the last `SPAN_S` seconds, the oldest first."""

    points: tuple[FreePoint, ...] = ()

    def with_status(self, status: MemoryStatus) -> "FreeHistory":
        """Return the history with the reading of `status`; one without a reading adds nothing."""
        if status.reading is None:
            return self
        at = status.reading.at
        kept = tuple(point for point in self.points if at - SPAN_S <= point.at < at)
        return FreeHistory((*kept, FreePoint(at, status.headroom)))

    @property
    def most(self) -> int:
        """The largest figure known, 0 without any."""
        return max((point.free or 0 for point in self.points), default=0)
