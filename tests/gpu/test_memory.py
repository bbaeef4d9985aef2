"""Guards against an arena on the card that forgets, leaks, or breaks captured graphs."""

import numpy as np
import pytest

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.errors import DeviceError, MemoryShortageError
from stratadesk.kernels.cuda.device import Device, open_device
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWorkspace
from stratadesk.units import MIB
from tests.gpu.bench import Bench

BLOCK = 32 * MIB
ROWS, COLUMNS = 64, 256


@pytest.fixture
def device() -> Device:
    return open_device()


def test_blocks_come_and_go_at_the_same_addresses(device: Device) -> None:
    before = device.free()
    memory = CudaMemory(device, BLOCK)
    memory.reserve(4 * BLOCK)
    assert device.free() == before
    address = memory.address
    for index in range(3):
        memory.map_block(index)
    assert before - device.free() == 3 * BLOCK
    memory.unmap_block(1)
    memory.map_block(1)
    assert memory.address == address
    memory.release()
    assert device.free() == before


def test_fresh_blocks_are_poisoned(bench: Bench) -> None:
    memory = CudaMemory(bench.device, BLOCK, poison=True)
    memory.reserve(BLOCK)
    memory.map_block(0)
    values = bench.ops.download(DeviceTensor(memory.address, (BLOCK // 4,)))
    memory.release()
    assert np.isnan(values).all()


def test_a_block_in_the_machines_memory_takes_none_of_the_card_and_holds_what_it_is_given(
    bench: Bench,
) -> None:
    """It stands for one that was paged out: read over the link, at the same address."""
    memory = CudaMemory(bench.device, BLOCK, poison=True)
    memory.reserve(2 * BLOCK)
    memory.map_block(0)
    before = bench.device.free()
    memory.map_block(1, on_host=True)
    assert bench.device.free() == before
    values = np.random.default_rng(0).standard_normal((1, BLOCK // 4), np.float32)
    place = DeviceTensor(memory.address + BLOCK, values.shape)
    assert np.isnan(bench.ops.download(place)).all()
    bench.ops.upload(place.address, values)
    copied = DeviceTensor(memory.address, values.shape)
    bench.ops.copy(copied, place)
    assert np.array_equal(bench.ops.download(copied), values)
    memory.release()
    assert bench.device.free() == before + BLOCK


@pytest.mark.parametrize("index", [-1, 2, 0])
def test_a_block_is_mapped_once_and_within_the_range(device: Device, index: int) -> None:
    memory = CudaMemory(device, BLOCK)
    memory.reserve(2 * BLOCK)
    memory.map_block(0)
    with pytest.raises(ValueError, match="cannot be mapped"):
        memory.map_block(index)
    memory.release()


def test_blocks_that_are_no_multiples_are_refused(device: Device) -> None:
    with pytest.raises(DeviceError, match="are not whole multiples of the card's"):
        CudaMemory(device, MIB).reserve(4 * MIB)


def test_a_card_that_is_full_is_said_and_nothing_is_left_behind(device: Device) -> None:
    before = device.free()
    memory = CudaMemory(device, device.total + 2 * MIB - device.total % (2 * MIB))
    memory.reserve(memory.block_bytes)
    with pytest.raises(MemoryShortageError, match="ran out of memory while allocating"):
        memory.map_block(0)
    with pytest.raises(MemoryShortageError):
        CudaMemory(device, BLOCK).allocate(device.total)
    memory.release()
    assert device.free() >= before


@pytest.mark.parametrize("ranges", [True, False])
def test_an_arena_takes_ranges_or_one_plain_allocation(device: Device, *, ranges: bool) -> None:
    before = device.free()
    memory = CudaMemory(device, BLOCK, ranges=ranges)
    arena = Arena(memory, ArenaGeometry(BLOCK, 0, ()), capacity=4 * BLOCK, end=2 * BLOCK)
    assert arena.elastic is ranges
    if ranges:
        assert arena.resize(3 * BLOCK, 0) == 3 * BLOCK
        assert before - device.free() == 3 * BLOCK
        assert arena.resize(BLOCK, 0) == BLOCK
    else:
        with pytest.raises(DeviceError, match="fixed until the model is loaded again"):
            arena.resize(3 * BLOCK, 0)
    arena.release()
    assert device.free() == before


def test_graphs_stay_right_when_tail_blocks_go_and_come_back(bench: Bench) -> None:
    """One graph reads a block that stays, one a block that is unmapped, remapped and filled."""
    memory = CudaMemory(bench.device, BLOCK, poison=True)
    memory.reserve(3 * BLOCK)
    for index in range(3):
        memory.map_block(index)
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((2, ROWS, COLUMNS), np.float32)
    x = rng.standard_normal((1, COLUMNS), np.float32)
    graphs, results = [], []
    for index in range(2):
        ops: CudaOps = bench.ops
        weight = ops.weight(memory.address + index * BLOCK, "F32", (ROWS, COLUMNS))
        ops.upload(weight.address, matrices[index])
        source = bench.tensor(x)
        ops.workspace = DeviceWorkspace(ops.resident.take(MIB), MIB)
        bench.device.stream.begin_capture()
        results.append(ops.linear(weight, source))
        ops.flush()
        graphs.append(bench.device.stream.end_capture())

    def replayed(index: int) -> np.ndarray:
        graphs[index].launch(bench.device.stream)
        return bench.ops.download(results[index])

    wanted = [replayed(index) for index in range(2)]
    assert np.allclose(wanted[0], x @ matrices[0].T, rtol=1e-4, atol=1e-4)
    memory.unmap_block(2)
    memory.unmap_block(1)
    assert np.array_equal(replayed(0), wanted[0])
    memory.map_block(1)
    assert np.isnan(replayed(1)).all()
    bench.ops.upload(memory.address + BLOCK, matrices[1])
    assert np.array_equal(replayed(1), wanted[1])
    assert np.array_equal(replayed(0), wanted[0])
    memory.release()
