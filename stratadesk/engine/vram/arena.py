"""The one piece of memory that everything on the card lies in, and its elastic tail.

An address range is reserved once and backed by whole blocks from its start up to `end`; only
the tail grows and shrinks, so an address once given out never changes. Where ranges are
refused, one plain allocation takes the place of all blocks and keeps its size.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.geometry import ArenaGeometry, Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.errors import DeviceError, MemoryShortageError


class Allocation(StrEnum):
    """What happened to physical memory."""

    MAPPED = "mapped"
    UNMAPPED = "unmapped"
    ALLOCATED = "allocated"
    RELEASED = "released"


AllocationHook = Callable[[Allocation, int], None]
"""Told of every physical allocation and release, with its number of bytes."""


class ArenaMemory(Protocol):
    """What a backend gives: memory by blocks behind one range of addresses.

    The errors named at `kernels.host.memory.HostMemory` are part of the contract.
    """

    @property
    def block_bytes(self) -> int:
        """What is mapped and unmapped at once."""

    @property
    def address(self) -> int:
        """The address of byte 0, the same from `reserve` or `allocate` to `release`."""

    def reserve(self, n_bytes: int) -> None:
        """Reserve a range with nothing mapped in it; DeviceError where that is refused."""

    def allocate(self, n_bytes: int) -> None:
        """Make one plain allocation instead; MemoryShortageError when it does not fit."""

    def map_block(self, index: int) -> None:
        """Back a block with memory of undefined content; MemoryShortageError if refused."""

    def unmap_block(self, index: int) -> None:
        """Give a block's memory back; no kernel or copy may touch it any more."""

    def view(self, span: Span) -> npt.NDArray[np.uint8]:
        """The bytes themselves, uint8 [size], where the processor can address them."""

    def poison(self, span: Span) -> None:
        """Overwrite `span` with NaN patterns, where the memory is set to do so."""

    def release(self) -> None:
        """Give all memory and the range back."""


def _ignore(kind: Allocation, n_bytes: int) -> None:
    """Listen to no allocation."""


class Arena:
    """Memory laid out as `geometry` says, mapped from its start up to `end`.

    `capacity` is the size of the address range: what the arena may ever grow to, in bytes and no
    more than the card has. `end` is what is mapped first. Both are rounded down to whole blocks,
    so the arena holds no more than it was told, save that fixed regions and head are always
    wholly mapped. `slot_limit` is the most slots that are used, however many would fit.

    Raises:
        MemoryShortageError: when the card has no room for `end` bytes; nothing is held then.
    """

    def __init__(
        self,
        memory: ArenaMemory,
        geometry: ArenaGeometry,
        *,
        capacity: int,
        end: int,
        slot_limit: int | None = None,
        hook: AllocationHook = _ignore,
    ) -> None:
        self.memory = memory
        self.geometry = geometry
        self._slot_limit = slot_limit
        self._hook = hook
        self._capacity = capacity // memory.block_bytes
        self._blocks = 0
        self._plain_bytes = 0
        self.refusal = self._refused_range()
        """Why there is no range, in the driver's words; empty when there is one."""
        self._back(end)

    @property
    def elastic(self) -> bool:
        """Whether the tail can grow and shrink."""
        return not self.refusal

    @property
    def end(self) -> int:
        """The byte behind the last mapped one; also the number of bytes held."""
        return self._plain_bytes or self._blocks * self.memory.block_bytes

    @property
    def capacity(self) -> int:
        """The largest `end` that can be reached."""
        return self._capacity * self.memory.block_bytes if self.elastic else self.end

    @property
    def slots(self) -> int:
        """How many expert slots there are: wholly mapped ones, up to the limit."""
        return self.slots_at(self.end)

    def slots_at(self, end: int) -> int:
        """How many expert slots there are in an arena that ends at `end`."""
        fitting = self.geometry.slots_within(end)
        return fitting if self._slot_limit is None else min(fitting, self._slot_limit)

    def target(self, end: int, floor: int) -> int:
        """What `resize` would reach: whole blocks, none beyond `end`, but all up to `floor`."""
        if not self.elastic:
            return self.end
        block = self.memory.block_bytes
        return min(max(end // block, -(-floor // block)) * block, self.capacity)

    def resize(self, end: int, floor: int) -> int:
        """Map or unmap whole blocks at the tail and return the end reached.

        Nothing below `floor` is unmapped. The caller sees to it that no kernel and no copy
        touches what lies behind `target(end, floor)`.

        Raises:
            MemoryShortageError: when the card refuses a block; the arena then has its old size.
            DeviceError: when this arena is one plain allocation.
        """
        if not self.elastic:
            raise DeviceError(
                f"The memory's size is fixed until the model is loaded again: {self.refusal}",
                "Load the model again to apply it.",
            )
        blocks = self.target(end, floor) // self.memory.block_bytes
        before = self._blocks
        try:
            self._map_up_to(blocks)
        except MemoryShortageError:
            self._unmap_down_to(before)
            raise
        self._unmap_down_to(blocks)
        return self.end

    def view(self, span: Span) -> npt.NDArray[np.uint8]:
        """The bytes of `span`, uint8 [size], where the processor can address them.

        Raises:
            InvariantError: when a byte of it is not mapped.
        """
        if not 0 <= span.start <= span.end <= self.end:
            raise InvariantError(f"{span} is not within the {self.end} mapped bytes")
        return self.memory.view(span)

    def release(self) -> None:
        """Give everything back; the arena is of no use afterwards."""
        held = self.end
        self.memory.release()
        self._blocks = self._plain_bytes = self._capacity = 0
        if held:
            self._hook(Allocation.RELEASED, held)

    def _refused_range(self) -> str:
        try:
            self.memory.reserve(self._capacity * self.memory.block_bytes)
        except DeviceError as refused:
            return refused.sentence
        return ""

    def _back(self, end: int) -> None:
        try:
            if self.elastic:
                self._map_up_to(
                    self.target(end, self.geometry.rows_start) // self.memory.block_bytes
                )
            else:
                self._allocate(end)
        except MemoryShortageError:
            self.release()
            raise

    def _allocate(self, n_bytes: int) -> None:
        self.memory.allocate(n_bytes)
        self._plain_bytes = n_bytes
        self._hook(Allocation.ALLOCATED, n_bytes)

    def _map_up_to(self, blocks: int) -> None:
        while self._blocks < blocks:
            self.memory.map_block(self._blocks)
            self._blocks += 1
            self._hook(Allocation.MAPPED, self.memory.block_bytes)

    def _unmap_down_to(self, blocks: int) -> None:
        while self._blocks > blocks:
            self.memory.unmap_block(self._blocks - 1)
            self._blocks -= 1
            self._hook(Allocation.UNMAPPED, self.memory.block_bytes)
