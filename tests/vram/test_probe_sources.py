"""Guards against a source whose failure ends the program or becomes a figure of 0.

A laptop without a driver, a card that fell off the bus, WDDM's missing figures per process: each
is N/A with its reason, and the source comes back when the card does.
"""

import os
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.growth import GrowthTracker
from stratadesk.engine.vram.live_reader import LiveReader, card_reader, simulated_reader
from stratadesk.engine.vram.nvml_source import NvmlSource
from stratadesk.engine.vram.program_names import program_name
from stratadesk.engine.vram.readings import (
    CardFigure,
    Growth,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.engine.vram.sources import CallableSource, Unavailable
from stratadesk.errors import DeviceError
from stratadesk.kernels.host.memory import SimulatedCard
from stratadesk.units import MIB
from tests.vram.probe_helpers import ScriptedPrograms


class FakeNvml:
    """pynvml with one card; `broken` makes every call fail with that message."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.broken = ""
        self.cards = 1
        self.model = 0
        self.open = 0
        self.compute: list[tuple[int, int | None]] = []
        self.graphics: list[tuple[int, int | None]] = []

    def _check(self) -> None:
        if self.broken:
            raise self.NVMLError(self.broken)

    def nvmlInit(self) -> None:
        self._check()
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._check()

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"card {index}"

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        return f"card at {bus_id}"

    def nvmlDeviceGetMemoryInfo(self, device: str) -> Any:
        self._check()
        total = 8151 if device == "card 0" else 12282
        return SimpleNamespace(total=total * MIB, free=301 * MIB, used=0)

    def nvmlDeviceGetCurrentDriverModel(self, device: str) -> int:
        self._check()
        return self.model

    def nvmlDeviceGetComputeRunningProcesses(self, device: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.compute]

    def nvmlDeviceGetGraphicsRunningProcesses(self, device: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.graphics]


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml()


def source(nvml: FakeNvml, pci_bus_id: str | None = None) -> NvmlSource:
    return NvmlSource(pci_bus_id, lambda: nvml, {7: "game", 8: "browser"}.get)


def test_cuda_and_the_simulated_card_are_functions() -> None:
    figure = CallableSource(Source.CUDA, lambda: (3, 9)).read()
    assert figure == CardFigure(Source.CUDA, total=9, free=3)


def test_a_function_that_fails_is_a_reason() -> None:
    def lost() -> tuple[int, int]:
        raise DeviceError("The GPU does not answer.", "Restart.")

    figure = CallableSource(Source.CUDA, lost).read()
    assert (figure.headroom, figure.why) == (None, "The GPU does not answer.")


def test_nvml_reads_the_card(nvml: FakeNvml) -> None:
    assert source(nvml).read() == CardFigure(Source.NVML, total=8151 * MIB, free=301 * MIB)
    assert source(nvml, "00000000:01:00.0").read().total == 12282 * MIB


def test_nvml_does_not_guess_among_two_cards(nvml: FakeNvml) -> None:
    nvml.cards = 2
    assert source(nvml).read().why == "2 NVIDIA GPUs, and nobody said which one"


def test_nvml_that_breaks_is_a_reason_and_comes_back(nvml: FakeNvml) -> None:
    card = source(nvml)
    assert card.read().headroom is not None
    nvml.broken = "GPU is lost"
    figure = card.read()
    assert (figure.headroom, figure.total, figure.why) == (None, None, "GPU is lost")
    assert card.read_programs().why == "GPU is lost"
    assert card.read_driver_model() is DriverModel.UNKNOWN
    nvml.broken = ""
    assert card.read().headroom == 301 * MIB
    card.close()
    card.close()
    assert nvml.open == 0


def test_a_missing_package_is_a_reason() -> None:
    def missing() -> Any:
        raise Unavailable("the package nvidia-ml-py is missing")

    assert NvmlSource(load=missing).read().why == "the package nvidia-ml-py is missing"


def test_nvml_names_programs_and_counts_one_in_both_lists_once(nvml: FakeNvml) -> None:
    nvml.compute = [(7, 500 * MIB), (9, 10 * MIB)]
    nvml.graphics = [(8, 90 * MIB), (7, 500 * MIB)]
    assert source(nvml).read_programs().programs == (
        ProgramUse(7, "game", 500 * MIB),
        ProgramUse(9, None, 10 * MIB),
        ProgramUse(8, "browser", 90 * MIB),
    )


def test_under_wddm_nvml_has_no_figure_per_program(nvml: FakeNvml) -> None:
    nvml.graphics = [(7, None), (8, None)]
    found = source(nvml).read_programs()
    assert (found.programs, found.why) == (None, "the driver gives NVML no figure per program")
    nvml.graphics = []
    assert source(nvml).read_programs().programs == ()


def test_nvml_tells_the_driver_model(nvml: FakeNvml) -> None:
    nvml.model = 1
    assert source(nvml).read_driver_model() is DriverModel.TCC


def test_the_real_nvml_of_this_machine_answers_or_says_why() -> None:
    card = NvmlSource()
    figure, programs = card.read(), card.read_programs()
    card.close()
    if figure.why:
        assert figure.headroom is None
        assert programs.programs is None
        assert programs.why
    else:
        assert figure.total is not None
        assert figure.headroom is not None
        assert figure.headroom <= figure.total


def test_program_names_are_fit_to_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program_name(os.getpid())
    assert program_name(2**30) is None
    monkeypatch.setattr(psutil.Process, "name", lambda self: "a\x1b[31m\nb\u202e")
    assert program_name(os.getpid()) == "a[31mb"


# --- who grew ----------------------------------------------------------------------------


def use(pid: int, mib: float | None, name: str | None = "game") -> ProgramUse:
    return ProgramUse(pid, name, None if mib is None else int(mib * MIB))


def test_the_program_that_grew_most_is_named() -> None:
    tracker = GrowthTracker(own_pid=1)
    assert tracker.note(0, [use(2, 100), use(3, 500, "browser")]) is None
    grown = tracker.note(2, [use(2, 300), use(3, 540, "browser")])
    assert grown == Growth("game", 2, 200 * MIB)


def test_a_program_that_has_just_started_grew_from_nothing() -> None:
    tracker = GrowthTracker(own_pid=1)
    tracker.note(0, [])
    assert tracker.note(1, [use(2, 412)]) == Growth("game", 2, 412 * MIB)


def test_slow_growth_adds_up_within_thirty_seconds_and_no_longer() -> None:
    tracker = GrowthTracker(own_pid=1)
    for second in range(0, 31, 2):
        grown = tracker.note(second, [use(2, 100 + 10 * second)])
    assert grown == Growth("game", 2, 300 * MIB)
    assert tracker.note(90, [use(2, 400)]) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (use(1, 100), use(1, 900)),
        (use(2, 100, None), use(2, 900, None)),
        (use(2, None), use(2, 900)),
        (use(2, 100), use(2, None)),
        (use(2, 100), use(2, 131)),
        (use(2, 900), use(2, 100)),
    ],
    ids=["ourselves", "no name", "not known before", "not known now", "noise", "shrank"],
)
def test_who_is_not_named(before: ProgramUse, after: ProgramUse) -> None:
    tracker = GrowthTracker(own_pid=1)
    tracker.note(0, [before])
    assert tracker.note(1, [after]) is None


# --- all together ------------------------------------------------------------------------


class Static:
    """A source with one figure that notes when it is closed."""

    def __init__(self, figure: CardFigure) -> None:
        self.figure = figure
        self.closed = False

    def read(self) -> CardFigure:
        return self.figure

    def close(self) -> None:
        self.closed = True


def test_a_reading_has_every_source_and_our_own_use() -> None:
    programs = ScriptedPrograms()
    programs.uses = {"stratadesk": 6000, "game": 500}
    cuda = Static(CardFigure(Source.CUDA, total=9, free=5))
    dxgi = Static(CardFigure(Source.DXGI, budget=8, own=4, own_shared=2))
    reader = LiveReader([cuda, dxgi], programs, lambda: DriverModel.WDDM, own_pid=1)
    found = reader.read(0)
    assert found.driver_model is DriverModel.WDDM
    assert [figure.source for figure in found.figures] == [Source.CUDA, Source.DXGI]
    assert (found.own_dedicated, found.own_shared) == (4, 2)
    reader.close()
    assert cuda.closed
    assert dxgi.closed


def test_our_own_use_comes_from_the_list_where_no_source_tells_it() -> None:
    class Counters(ScriptedPrograms):
        def read_programs(self) -> ProgramList:
            return ProgramList(Source.PDH, (ProgramUse(1, "stratadesk", 70, 30),))

    reader = LiveReader([], Counters(), own_pid=1)
    found = reader.read(0)
    assert (found.own_dedicated, found.own_shared) == (70, 30)
    assert LiveReader([], Counters(), own_pid=2).read(0).own_shared is None


def test_programs_are_asked_for_every_two_seconds_and_when_it_is_urgent() -> None:
    programs = ScriptedPrograms()
    reader = LiveReader([], programs)
    assert reader.read(0).programs is not None
    assert reader.read(0.5).programs is None
    assert reader.read(1.0, urgent=True).programs is not None
    assert reader.read(2.9).programs is None
    assert reader.read(3.0).programs is not None
    assert programs.asked == 3


def test_the_program_that_grew_is_in_the_reading() -> None:
    programs = ScriptedPrograms()
    reader = LiveReader([], programs)
    programs.uses = {"game": 100}
    assert reader.read(0).grew is None
    programs.uses = {"game": 700}
    assert reader.read(2).grew == Growth("game", 1, 600 * MIB)


def test_the_driver_model_is_asked_for_until_it_is_known() -> None:
    answers = iter([DriverModel.UNKNOWN, DriverModel.WDDM])
    reader = LiveReader([], driver_model=lambda: next(answers))
    models = [reader.read(at).driver_model for at in range(4)]
    assert models == [DriverModel.UNKNOWN] + [DriverModel.WDDM] * 3


def test_the_simulated_card_is_one_source() -> None:
    card = SimulatedCard(8151 * MIB, others=700 * MIB)
    found = simulated_reader(lambda: (card.free, card.total)).read(0)
    assert (found.headroom, len(found.figures)) == (7451 * MIB, 1)
    assert found.deciding is not None
    assert found.deciding.source is Source.SIMULATED


@pytest.mark.parametrize(
    ("system", "release", "sources"),
    [
        ("Linux", "6.8.0", [Source.CUDA, Source.NVML]),
        ("Linux", "5.15-microsoft-standard-WSL2", [Source.CUDA, Source.NVML, Source.DXGI]),
        ("Windows", "11", [Source.CUDA, Source.NVML, Source.DXGI]),
    ],
)
def test_each_platform_asks_what_it_has(system: str, release: str, sources: list[Source]) -> None:
    reader = card_reader(lambda: (5, 9), system=system, release=release)
    found = reader.read(0)
    reader.close()
    assert [figure.source for figure in found.figures] == sources
    assert found.figures[0].headroom == 5
    assert all(figure.why for figure in found.figures[2:])
    assert found.programs is not None
