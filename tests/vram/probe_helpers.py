"""Readings in MiB, a clock that a test moves, and readers that return what a test says."""

from collections.abc import Iterable

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.readings import (
    CardFigure,
    Growth,
    MemoryReading,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.units import MIB

RESERVE = 590 * MIB


def reading(
    at: float,
    free_mib: float | None,
    *,
    model: DriverModel = DriverModel.LINUX,
    grew: Growth | None = None,
    source: Source = Source.CUDA,
) -> MemoryReading:
    free = None if free_mib is None else int(free_mib * MIB)
    why = "no answer" if free is None else ""
    return MemoryReading(at, model, (CardFigure(source, free=free, why=why),), grew=grew)


class Clock:
    """Seconds that stand still until a test moves them."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class ScriptedReader:
    """Returns the free MiB it is given, one by one, and counts what it was asked."""

    def __init__(self, free_mib: Iterable[float | None]) -> None:
        self._free = iter(free_mib)
        self.urgent: list[bool] = []
        self.closed = False

    def read(self, at: float, *, urgent: bool = False) -> MemoryReading:
        self.urgent.append(urgent)
        return reading(at, next(self._free))

    def close(self) -> None:
        self.closed = True


class ScriptedPrograms:
    """Says that the programs of `uses` (name → MiB) hold memory; pids count from 1."""

    def __init__(self) -> None:
        self.uses: dict[str, float | None] = {}
        self.asked = 0

    def read_programs(self) -> ProgramList:
        self.asked += 1
        programs = (
            ProgramUse(pid, name, None if used is None else int(used * MIB))
            for pid, (name, used) in enumerate(self.uses.items(), 1)
        )
        return ProgramList(Source.PDH, tuple(programs))

    def close(self) -> None:
        pass
