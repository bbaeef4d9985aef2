"""One look at the real or simulated card: all sources asked, their answers put together."""

import os
import platform
from collections.abc import Callable, Sequence

from stratadesk.engine.vram.driver_model import DriverModel, model_of_platform
from stratadesk.engine.vram.dxgi_source import DxgiSource
from stratadesk.engine.vram.growth import GrowthTracker
from stratadesk.engine.vram.nvml_source import NvmlSource
from stratadesk.engine.vram.pdh_source import PdhSource
from stratadesk.engine.vram.readings import (
    CardFigure,
    MemoryReading,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.engine.vram.sources import (
    AbsentSource,
    CallableSource,
    CardSource,
    ProgramSource,
)

PROGRAMS_EVERY_S = 2.0
"""Who holds the memory is asked less often than how much is free: it takes longer."""

CardFigures = Callable[[], tuple[int, int]]
"""Returns (free, total) in bytes; raises a StrataDeskError when it cannot."""


class LiveReader:
    """Asks `cards` each time, and `programs` every two seconds or when the reading is urgent."""

    def __init__(
        self,
        cards: Sequence[CardSource],
        programs: ProgramSource | None = None,
        driver_model: Callable[[], DriverModel] = lambda: DriverModel.UNKNOWN,
        own_pid: int | None = None,
    ) -> None:
        self._cards = tuple(cards)
        self._programs = programs
        self._ask_model = driver_model
        self._model = DriverModel.UNKNOWN
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._growth = GrowthTracker(self._own_pid)
        self._programs_at: float | None = None

    def read(self, at: float, *, urgent: bool = False) -> MemoryReading:
        """Read everything; `at` is now in seconds."""
        figures = tuple(card.read() for card in self._cards)
        programs = self._read_programs(at, urgent)
        own = programs.find(self._own_pid) if programs else None
        listed = programs.programs if programs else None
        return MemoryReading(
            at=at,
            driver_model=self._driver_model(),
            figures=figures,
            programs=programs,
            own_dedicated=_own_dedicated(figures, own),
            own_shared=_own_shared(figures, own),
            grew=None if listed is None else self._growth.note(at, listed),
        )

    def close(self) -> None:
        """Let go of all drivers."""
        for card in self._cards:
            card.close()
        if self._programs is not None:
            self._programs.close()

    def _read_programs(self, at: float, urgent: bool) -> ProgramList | None:
        last = self._programs_at
        due = urgent or last is None or not 0 <= at - last < PROGRAMS_EVERY_S
        if self._programs is None or not due:
            return None
        self._programs_at = at
        return self._programs.read_programs()

    def _driver_model(self) -> DriverModel:
        if self._model is DriverModel.UNKNOWN:
            self._model = self._ask_model()
        return self._model


def _own_dedicated(figures: Sequence[CardFigure], own: ProgramUse | None) -> int | None:
    told = next((figure.own for figure in figures if figure.own is not None), None)
    return own.dedicated if told is None and own else told


def _own_shared(figures: Sequence[CardFigure], own: ProgramUse | None) -> int | None:
    told = next((figure.own_shared for figure in figures if figure.own_shared is not None), None)
    return own.shared if told is None and own else told


def simulated_reader(card: CardFigures, programs: ProgramSource | None = None) -> LiveReader:
    """Reads the host backend's stand-in for a card, under the model of this platform."""
    model = model_of_platform(platform.system(), platform.release())
    return LiveReader([CallableSource(Source.SIMULATED, card)], programs, lambda: model)


def card_reader(
    cuda: CardFigures,
    pci_bus_id: str | None = None,
    luid: int | None = None,
    *,
    system: str | None = None,
    release: str | None = None,
) -> LiveReader:
    """Reads a real card through every source of this platform.

    `cuda` is CUDA's figure for this process; `pci_bus_id` and `luid` (Windows) say which card
    it is, as CUDA tells them. They may be left out where there is only one.
    """
    model = model_of_platform(system or platform.system(), release or platform.release())
    nvml = NvmlSource(pci_bus_id)
    cards: list[CardSource] = [CallableSource(Source.CUDA, cuda), nvml]
    if (system or platform.system()) == "Windows":
        dxgi = DxgiSource(luid)
        programs = PdhSource(dxgi.find_luid)
        return LiveReader([*cards, dxgi], programs, nvml.read_driver_model)
    if model is DriverModel.WSL:
        cards.append(AbsentSource(Source.DXGI, "WSL has no DXGI"))
    return LiveReader(cards, nvml, lambda: model)
