"""Guards against CUDA's errors read wrongly, and against what a lost card leaves behind.

Nothing of a dead context can be freed: whoever tries gets one error more, CuPy's destructors print
theirs.
"""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from cupy.cuda import runtime

from stratadesk.errors import DeviceError, DeviceLostError, MemoryShortageError
from stratadesk.kernels.cuda import memory
from stratadesk.kernels.cuda.device import BUSY, Device, translated
from stratadesk.kernels.cuda.host_copies import MappedCopy
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.units import MIB

LAUNCH_FAILURE, INVALID_VALUE, NO_MEMORY = 719, 1, 2
BLOCK = 2 * MIB


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOSS, "why", "")


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (LAUNCH_FAILURE, DeviceLostError, "stopped answering while computing: unspecified launch"),
        (700, DeviceLostError, "stopped answering while computing"),
        (NO_MEMORY, MemoryShortageError, "ran out of memory while computing"),
        (BUSY, DeviceError, "is busy: another program has it for itself"),
        (INVALID_VALUE, DeviceError, "failed while computing: invalid argument"),
    ],
)
def test_each_status_becomes_its_error(status: int, kind: type, sentence: str) -> None:
    with pytest.raises(kind, match=sentence) as caught, translated("computing"):
        raise runtime.CUDARuntimeError(status)
    assert type(caught.value) is kind
    assert caught.value.remedy
    assert bool(LOSS.why) is (kind is DeviceLostError)


@pytest.mark.parametrize("status", [NO_MEMORY, BUSY, INVALID_VALUE])
def test_whatever_a_lost_card_answers_means_that_it_is_lost(status: int) -> None:
    LOSS.note("stopped answering while computing: launch failure")
    with pytest.raises(DeviceLostError), translated("unmapping a block"):
        raise runtime.CUDARuntimeError(status)
    assert LOSS.why == "stopped answering while computing: launch failure"


class Driver:
    """CUDA's driver functions over a dictionary; every call fails while `failing` is not 0."""

    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM=0)
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemLocationType = SimpleNamespace(
        CU_MEM_LOCATION_TYPE_DEVICE=1, CU_MEM_LOCATION_TYPE_HOST_NUMA=3
    )
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)

    def __init__(self) -> None:
        self.failing = 0
        self.ranges: set[int] = set()
        self.handles: dict[int, Any] = {}
        self.mapped: dict[int, int] = {}

    def CUmemAllocationProp(self) -> Any:
        return SimpleNamespace(type=0, location=SimpleNamespace(type=0, id=0))

    def CUmemAccessDesc(self) -> Any:
        return SimpleNamespace(location=None, flags=0)

    def _done(self, *values: Any) -> tuple[Any, ...]:
        return (Status(self.failing), *values)

    def cuMemGetAllocationGranularity(self, *_: Any) -> tuple[Any, ...]:
        return self._done(2 * MIB)

    def cuMemAddressReserve(self, *_: Any) -> tuple[Any, ...]:
        self.ranges.add(1 << 40)
        return self._done(1 << 40)

    def cuMemCreate(self, size: int, properties: Any, _flags: int) -> tuple[Any, ...]:
        self.handles[len(self.handles)] = properties
        return self._done(len(self.handles) - 1)

    def cuMemMap(self, address: int, _size: int, _at: int, handle: int, _f: int) -> tuple[Any, ...]:
        self.mapped[address] = handle
        return self._done()

    def cuMemSetAccess(self, *_: Any) -> tuple[Any, ...]:
        return self._done()

    def cuMemUnmap(self, address: int, _size: int) -> tuple[Any, ...]:
        if not self.failing:
            del self.mapped[address]
        return self._done()

    def cuMemRelease(self, handle: int) -> tuple[Any, ...]:
        if not self.failing:
            del self.handles[handle]
        return self._done()

    def cuMemAddressFree(self, address: int, _size: int) -> tuple[Any, ...]:
        if not self.failing:
            self.ranges.discard(address)
        return self._done()


class Status(int):
    """A CUresult."""

    name = "CUDA_ERROR_LAUNCH_FAILED"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(memory, "driver_functions", lambda: made)
    return made


def mapped(driver: Driver) -> CudaMemory:
    def synchronize() -> None:
        if driver.failing:
            raise runtime.CUDARuntimeError(driver.failing)

    stream = SimpleNamespace(ptr=0, synchronize=synchronize)
    made = CudaMemory(Device(0, "A card", "sm_89", 8 << 30, 24, stream), BLOCK)
    made.reserve(3 * BLOCK)
    made.map_block(0)
    made.map_block(1, on_host=True)
    return made


def test_a_block_lies_on_the_card_or_in_the_machines_memory(driver: Driver) -> None:
    mapped(driver)
    assert [properties.location.type for properties in driver.handles.values()] == [1, 3]


def test_memory_of_a_card_that_answers_is_returned(driver: Driver) -> None:
    mapped(driver).release()
    assert (driver.handles, driver.mapped, driver.ranges) == ({}, {}, set())


def test_memory_of_a_lost_card_is_left_to_the_end_of_the_process(driver: Driver) -> None:
    held = mapped(driver)
    driver.failing = LAUNCH_FAILURE
    held.release()
    assert LOSS.why
    driver.failing = 0
    held.release()
    assert len(driver.handles) == len(driver.mapped) == 2


def test_pinned_memory_of_a_lost_card_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_address: int) -> None:
        raise runtime.CUDARuntimeError(LAUNCH_FAILURE)

    monkeypatch.setattr(runtime, "freeHost", refuse)
    copy = object.__new__(MappedCopy)
    copy.address = 4_096
    copy.release()
    assert LOSS.why


FREED = """
import logging
import sys
from cupy.cuda import function, runtime
from stratadesk.kernels.cuda.cubins import Kernels
from stratadesk.kernels.cuda.device import error_for
from stratadesk.kernels.cuda.loss import LOSS

logging.disable()

class Graphs:
    "As a model holds some."

def module():
    made = function.Module()
    made.ptr = 5
    return made

class Event:
    "CuPy's is destroyed by a call of CUDA."

    def __init__(self, status):
        self.status = status

    def __del__(self):
        raise runtime.CUDARuntimeError(self.status)

if "quiet" in sys.argv:
    LOSS.stay_quiet()
    LOSS.stay_quiet()
kernels, graphs = Kernels(), Graphs()
kernels._modules["a program"] = module()
graphs.made = [module()]
if "watched" in sys.argv:
    LOSS.watch(graphs)
if "lost" in sys.argv:
    error_for(719, "computing", "launch failure")
if "event" in sys.argv:
    Event(int(sys.argv[-1]))
if "freed" in sys.argv:
    del kernels, graphs
"""


def said_on_stderr(*how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FREED, *how], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


@pytest.mark.parametrize("when", [(), ("freed",)])
def test_nothing_of_a_lost_card_is_destroyed_not_even_at_the_end(when: tuple[str, ...]) -> None:
    assert "moduleUnload" in said_on_stderr("watched", *when)
    assert said_on_stderr("watched", "lost", *when) == ""


def test_an_event_that_dies_with_its_card_does_so_quietly() -> None:
    lost, refused = str(LAUNCH_FAILURE), str(INVALID_VALUE)
    assert "Event.__del__" in said_on_stderr("event", lost)
    assert "Event.__del__" not in said_on_stderr("quiet", "event", lost)
    assert "Event.__del__" in said_on_stderr("quiet", "event", refused)
    assert said_on_stderr("quiet", "lost", "watched", "event", refused) == ""
