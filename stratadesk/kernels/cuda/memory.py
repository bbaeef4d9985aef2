"""An arena's memory on the card: a range of addresses backed block by block.

The rules are those of `engine.vram.arena.ArenaMemory`. cuda-bindings gives CUDA's virtual memory
functions, which CuPy has not.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.errors import DeviceError, DeviceLostError, MemoryShortageError
from stratadesk.kernels.cuda.bindings import checked, driver_functions
from stratadesk.kernels.cuda.device import Device, translated
from stratadesk.units import format_bytes

POISON = 0xFF
"""Bytes of which every float32 and half is a NaN."""


class Extent(Protocol):
    """Bytes from `start` up to and without `end`, counted from the range's start."""

    @property
    def start(self) -> int:
        """First byte."""

    @property
    def end(self) -> int:
        """The byte behind the last one."""


class CudaMemory:
    """Memory of `device` in blocks of `block_bytes`, a multiple of its granularity (2 MiB).

    `ranges` False stands for a driver that reserves no address ranges. With `poison`, fresh and
    lent bytes are overwritten with NaN patterns (tests, debugging).
    """

    def __init__(
        self, device: Device, block_bytes: int, *, ranges: bool = True, poison: bool = False
    ) -> None:
        self.block_bytes = block_bytes
        self.address = 0
        self._device = device
        self._ranges = ranges
        self._poison = poison
        self._reserved = 0
        self._plain = 0
        self._handles: dict[int, Any] = {}

    def reserve(self, n_bytes: int) -> None:
        """Reserve a range of addresses, rounded up to blocks, with nothing mapped in it.

        Raises:
            DeviceError: when the driver refuses, or cuda-bindings is not there.
        """
        if not self._ranges:
            raise DeviceError("Address ranges are switched off.")
        driver = driver_functions()
        size = -(-n_bytes // self.block_bytes) * self.block_bytes
        granularity = checked(
            driver.cuMemGetAllocationGranularity(
                self._properties(driver),
                driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
            ),
            "asking for its block size",
        )
        if self.block_bytes % granularity:
            raise DeviceError(
                f"Blocks of {format_bytes(self.block_bytes)} are not whole multiples of the "
                f"card's {format_bytes(granularity)}."
            )
        self.address = int(
            checked(driver.cuMemAddressReserve(size, 0, 0, 0), "reserving addresses")
        )
        self._reserved = size

    def allocate(self, n_bytes: int) -> None:
        """Make one plain allocation of `n_bytes` in place of a range; it cannot be resized.

        Raises:
            MemoryShortageError: when the card refuses.
        """
        from cupy.cuda import runtime

        with translated(f"allocating {format_bytes(n_bytes)}"):
            self.address = runtime.malloc(n_bytes)
        self._plain = n_bytes
        self.poison(_Range(0, n_bytes))

    def map_block(self, index: int, *, on_host: bool = False) -> None:
        """Back block `index` with memory of undefined content.

        With `on_host` it lies in the machine's RAM and is read over the link, as a block does that
        Windows has paged out: that stands in for one in tests.

        Raises:
            MemoryShortageError: when the card refuses; nothing has changed then.
            ValueError: when the block is mapped already or beyond the range.
        """
        if index in self._handles or not 0 <= index < self._reserved // self.block_bytes:
            raise ValueError(f"block {index} cannot be mapped")
        driver, size = driver_functions(), self.block_bytes
        handle = checked(
            driver.cuMemCreate(size, self._properties(driver, on_host=on_host), 0),
            f"allocating {format_bytes(size)}",
        )
        self._map(driver, self.address + index * size, handle)
        self._handles[index] = handle
        self.poison(self._block(index))

    def unmap_block(self, index: int) -> None:
        """Return the memory behind block `index` to the card; waits until the device is idle.

        Raises:
            ValueError: when the block is not mapped.
        """
        if index not in self._handles:
            raise ValueError(f"block {index} is not mapped")
        self._wait()
        self._unmap(index)

    def view(self, span: Extent) -> npt.NDArray[np.uint8]:
        """Raise DeviceError: the processor cannot address the card's memory."""
        raise DeviceError(f"Bytes {span.start} to {span.end} lie on the card.")

    def poison(self, span: Extent) -> None:
        """Fill `span` with NaN patterns, if this memory is poisoned at all."""
        if self._poison and span.end > span.start:
            from cupy.cuda import runtime

            stream = self._device.stream.ptr
            with translated("filling memory"):
                runtime.memsetAsync(
                    self.address + span.start, POISON, span.end - span.start, stream
                )

    def release(self) -> None:
        """Return everything to the card; waits until the device is idle.

        What a lost card holds goes with the process.
        """
        try:
            self._wait()
            self._release_blocks()
            self._release_plain()
        except DeviceLostError:
            self._handles.clear()
            self._reserved = self._plain = self.address = 0

    def _release_blocks(self) -> None:
        for index in sorted(self._handles):
            self._unmap(index)
        if self._reserved:
            driver = driver_functions()
            checked(driver.cuMemAddressFree(self.address, self._reserved), "freeing addresses")
            self._reserved = self.address = 0

    def _release_plain(self) -> None:
        if self._plain:
            from cupy.cuda import runtime

            with translated("freeing memory"):
                runtime.free(self.address)
            self._plain = self.address = 0

    def _wait(self) -> None:
        with translated("computing"):
            self._device.stream.synchronize()

    def _unmap(self, index: int) -> None:
        driver, size = driver_functions(), self.block_bytes
        checked(driver.cuMemUnmap(self.address + index * size, size), "unmapping a block")
        checked(driver.cuMemRelease(self._handles.pop(index)), "releasing a block")

    def _map(self, driver: Any, address: int, handle: Any) -> None:
        """Map `handle` at `address` and make it readable; on failure nothing is left of it."""
        size = self.block_bytes
        try:
            checked(driver.cuMemMap(address, size, 0, handle, 0), "mapping a block")
        except (DeviceError, MemoryShortageError):
            driver.cuMemRelease(handle)
            raise
        access = driver.CUmemAccessDesc()
        access.location = self._properties(driver).location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        try:
            checked(driver.cuMemSetAccess(address, size, [access], 1), "opening a block")
        except (DeviceError, MemoryShortageError):
            driver.cuMemUnmap(address, size)
            driver.cuMemRelease(handle)
            raise

    def _properties(self, driver: Any, *, on_host: bool = False) -> Any:
        kinds = driver.CUmemLocationType
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        if on_host:
            properties.location.type = kinds.CU_MEM_LOCATION_TYPE_HOST_NUMA
            properties.location.id = 0
        else:
            properties.location.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE
            properties.location.id = self._device.index
        return properties

    def _block(self, index: int) -> "_Range":
        return _Range(index * self.block_bytes, (index + 1) * self.block_bytes)


class _Range:
    """Bytes from `start` up to and without `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
