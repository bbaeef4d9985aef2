"""Guards against CUDA's errors read wrongly, and memory that a lost card keeps for ever."""

from types import SimpleNamespace
from typing import Any

import pytest
from cupy.cuda import runtime

from stratadesk.errors import DeviceError, DeviceLostError, MemoryShortageError
from stratadesk.kernels.cuda import loss, memory
from stratadesk.kernels.cuda.device import BUSY, Device, translated
from stratadesk.kernels.cuda.host_copies import MappedCopy
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.units import MIB

LAUNCH_FAILURE, INVALID_VALUE, NO_MEMORY = 719, 1, 2
BLOCK = 2 * MIB


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOSS, "happened", False)
    monkeypatch.setattr(LOSS, "_unreleased", [])


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
    assert LOSS.happened is (kind is DeviceLostError)


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
        self.refuses_unmapping = False
        """As after a context that took mappings with it."""
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
        if self.refuses_unmapping:
            return (Status(INVALID_VALUE),)
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
    monkeypatch.setattr(memory, "_bindings", lambda: made)
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


def test_what_a_lost_card_keeps_is_released_when_it_is_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[str] = []

    def reset(index: int) -> str:
        resets.append(f"reset {index}")
        return ""

    monkeypatch.setattr(loss, "_reset", reset)
    held = mapped(driver)
    LOSS.bring_back(3)
    assert resets == []
    driver.failing = LAUNCH_FAILURE
    held.release()
    assert LOSS.happened
    assert len(driver.handles) == 2
    driver.failing = 0
    driver.refuses_unmapping = True
    LOSS.bring_back(3)
    assert resets == ["reset 3"]
    assert not LOSS.happened
    assert (driver.handles, driver.ranges) == ({}, set())


def test_a_card_that_cannot_be_reset_stays_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "_reset", lambda _index: "CUDA_ERROR_UNKNOWN")
    LOSS.note("It is gone.")
    with pytest.raises(DeviceLostError, match="could not be reset") as caught:
        LOSS.bring_back(0)
    assert "Start StrataDesk again" in caught.value.remedy
    assert LOSS.happened


def test_pinned_memory_of_a_lost_card_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_address: int) -> None:
        raise runtime.CUDARuntimeError(LAUNCH_FAILURE)

    monkeypatch.setattr(runtime, "freeHost", refuse)
    copy = object.__new__(MappedCopy)
    copy.address = 4_096
    copy.release()
    assert LOSS.happened
