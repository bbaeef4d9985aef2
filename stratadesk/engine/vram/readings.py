"""What one look at the card's memory found, source by source. All sizes are bytes.

A figure that could not be read is None and has a reason; it is never 0.
"""

from dataclasses import dataclass
from enum import StrEnum

from stratadesk.engine.vram.driver_model import DriverModel


class Source(StrEnum):
    """Who says it."""

    CUDA = "CUDA"
    """The runtime of this process."""
    NVML = "NVML"
    """The driver, for the whole card."""
    DXGI = "DXGI"
    """Windows: the budget it gives this process."""
    PDH = "PDH"
    """Windows: performance counters of each process."""
    SIMULATED = "simulated card"
    """The host backend's stand-in for a card."""


@dataclass(frozen=True, slots=True)
class CardFigure:
    """One source's figures; those it does not give are None, and `why` says why none came.

    `own` and `own_shared` are what this process holds on the card and in RAM for the card.
    """

    source: Source
    total: int | None = None
    free: int | None = None
    budget: int | None = None
    own: int | None = None
    own_shared: int | None = None
    why: str = ""

    @property
    def headroom(self) -> int | None:
        """What this process may still take: the free bytes or what is left of the budget."""
        left = None if self.budget is None or self.own is None else self.budget - self.own
        known = [figure for figure in (self.free, left) if figure is not None]
        return max(0, min(known)) if known else None


@dataclass(frozen=True, slots=True)
class ProgramUse:
    """Video memory of one process: on the card, and in RAM for the card; None where unknown."""

    pid: int
    name: str | None
    dedicated: int | None
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramList:
    """All processes that hold video memory, or None and the reason."""

    source: Source
    programs: tuple[ProgramUse, ...] | None
    why: str = ""

    def find(self, pid: int) -> ProgramUse | None:
        """The entry of process `pid`, if it is listed."""
        return next((use for use in self.programs or () if use.pid == pid), None)


@dataclass(frozen=True, slots=True)
class Growth:
    """A program other than this one that took `n_bytes` more of the card just now."""

    name: str
    pid: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """All sources at one moment; `at` is seconds of the probe's clock.

    `programs` is None when nobody asked who holds the memory this time. `own_shared` is what
    this process holds in RAM for the card: more than it pinned is evidence of paging.
    """

    at: float
    driver_model: DriverModel
    figures: tuple[CardFigure, ...]
    programs: ProgramList | None = None
    own_dedicated: int | None = None
    own_shared: int | None = None
    grew: Growth | None = None

    @property
    def deciding(self) -> CardFigure | None:
        """The figure with the smallest headroom, the first of equal ones; None if none is known."""
        smallest: CardFigure | None = None
        least: int | None = None
        for figure in self.figures:
            headroom = figure.headroom
            if headroom is not None and (least is None or headroom < least):
                smallest, least = figure, headroom
        return smallest

    @property
    def headroom(self) -> int | None:
        """The smallest headroom of all sources; decisions use no other."""
        return self.deciding.headroom if self.deciding else None
