"""Plain memory that behaves like a graphics card's: an address range, blocks, a card that fills.

A block must be mapped before it may be read or written. What has just been mapped, and what has
been unmapped, is filled with `POISON`, whose every 4 and 2 bytes are a NaN, so that a read of
bytes nobody wrote shows up in the logits of an ordinary test.
"""

import mmap
import sys
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.errors import DeviceError, MemoryShortageError
from stratadesk.units import format_bytes

Bytes = npt.NDArray[np.uint8]

POISON = 0xFF


class Extent(Protocol):
    """Bytes from `start` up to and without `end`, counted from the range's start."""

    @property
    def start(self) -> int:
        """First byte."""

    @property
    def end(self) -> int:
        """The byte behind the last one."""


class SimulatedCard:
    """A card of `total` bytes that this process and other programs share.

    `others` is what other programs hold and may be set at any time; the card takes no more of it
    than it has room for. `refuse_after` is the number of allocations that still succeed, None for
    no limit: the way to make a particular one fail.
    """

    def __init__(self, total: int, others: int = 0) -> None:
        self.total = total
        self.ours = 0
        self.refuse_after: int | None = None
        self._others = 0
        self.others = others

    @property
    def others(self) -> int:
        """Bytes that other programs hold."""
        return self._others

    @others.setter
    def others(self, n_bytes: int) -> None:
        self._others = max(0, min(n_bytes, self.total - self.ours))

    @property
    def free(self) -> int:
        """Bytes that nobody holds."""
        return self.total - self.ours - self._others

    def take(self, n_bytes: int) -> None:
        """Allocate `n_bytes` for this process.

        Raises:
            MemoryShortageError: when they are not free, or `refuse_after` has run out.
        """
        refused = self.refuse_after == 0
        if n_bytes > self.free or refused:
            raise MemoryShortageError(
                f"The card refused {format_bytes(n_bytes)}; {format_bytes(self.free)} of its "
                f"{format_bytes(self.total)} are free.",
                "Close other programs that use it, or choose a smaller --max-context.",
            )
        if self.refuse_after is not None:
            self.refuse_after -= 1
        self.ours += n_bytes

    def give(self, n_bytes: int) -> None:
        """Return `n_bytes` of this process to the card."""
        self.ours -= n_bytes


class HostMemory:
    """An arena's memory in RAM, counted against a simulated card; addresses are real ones.

    `block_bytes` is what is mapped and unmapped at once. `ranges` False stands for a driver that
    reserves no address ranges. Without `poison` nothing is written over, and RAM behind unmapped
    blocks goes back to the operating system where it takes it.
    """

    def __init__(
        self, card: SimulatedCard, block_bytes: int, *, ranges: bool = True, poison: bool = True
    ) -> None:
        self.card = card
        self.block_bytes = block_bytes
        self._ranges = ranges
        self._poison = poison
        self._buffer: mmap.mmap | None = None
        self._bytes: Bytes = np.empty(0, np.uint8)
        self._mapped = bytearray()
        self._plain_bytes = 0

    @property
    def address(self) -> int:
        """Where byte 0 lies in this process."""
        return self._bytes.ctypes.data

    def reserve(self, n_bytes: int) -> None:
        """Reserve a range of addresses, rounded up to blocks, with nothing mapped in it.

        Raises:
            DeviceError: when `ranges` is False or the operating system refuses.
        """
        if not self._ranges:
            raise DeviceError("This simulated card reserves no address ranges.")
        blocks = -(-n_bytes // self.block_bytes)
        try:
            self._open(blocks * self.block_bytes)
        except OSError as refused:
            raise DeviceError(
                f"{format_bytes(n_bytes)} could not be reserved: {refused}."
            ) from None
        self._mapped = bytearray(blocks)

    def allocate(self, n_bytes: int) -> None:
        """Make one plain allocation of `n_bytes` in place of a range; it cannot be resized.

        Raises:
            MemoryShortageError: when the card or the operating system refuses.
        """
        self.card.take(n_bytes)
        try:
            self._open(n_bytes)
        except OSError as refused:
            self.card.give(n_bytes)
            raise MemoryShortageError(
                f"{format_bytes(n_bytes)} of RAM could not be allocated: {refused}.",
                "Close other programs, or choose a smaller --vram-mib.",
            ) from None
        self._plain_bytes = n_bytes
        self.poison(_Range(0, n_bytes))

    def map_block(self, index: int) -> None:
        """Back block `index` with memory.

        Raises:
            MemoryShortageError: when the card refuses; nothing has changed then.
            ValueError: when the block is mapped already or beyond the range.
        """
        if not 0 <= index < len(self._mapped) or self._mapped[index]:
            raise ValueError(f"block {index} of {len(self._mapped)} cannot be mapped")
        self.card.take(self.block_bytes)
        self._mapped[index] = 1
        self.poison(self._block(index))

    def unmap_block(self, index: int) -> None:
        """Return the memory behind block `index` to the card.

        Raises:
            ValueError: when the block is not mapped.
        """
        if not 0 <= index < len(self._mapped) or not self._mapped[index]:
            raise ValueError(f"block {index} of {len(self._mapped)} is not mapped")
        self.poison(self._block(index))
        self._return_ram(self._block(index))
        self._mapped[index] = 0
        self.card.give(self.block_bytes)

    def view(self, span: Extent) -> Bytes:
        """The bytes of `span`, uint8 [size], writable; they are the memory itself, no copy.

        Raises:
            ValueError: when a byte of it is not mapped.
        """
        if not self._is_mapped(span):
            raise ValueError(f"bytes {span.start} to {span.end} are not all mapped")
        return self._bytes[span.start : span.end]

    def poison(self, span: Extent) -> None:
        """Fill `span` with NaN patterns, if this memory is poisoned at all."""
        if self._poison:
            self.view(span).fill(POISON)

    def release(self) -> None:
        """Return everything to the card and forget the range; views of it stay readable RAM."""
        self.card.give(sum(self._mapped) * self.block_bytes + self._plain_bytes)
        self._mapped, self._plain_bytes = bytearray(), 0
        self._bytes, self._buffer = np.empty(0, np.uint8), None

    def _open(self, n_bytes: int) -> None:
        if sys.platform == "win32":
            self._buffer = mmap.mmap(-1, n_bytes)
        else:
            self._buffer = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._buffer, np.uint8)

    def _block(self, index: int) -> "_Range":
        return _Range(index * self.block_bytes, (index + 1) * self.block_bytes)

    def _is_mapped(self, span: Extent) -> bool:
        if not 0 <= span.start <= span.end <= self._bytes.size:
            return False
        first, last = span.start // self.block_bytes, -(-span.end // self.block_bytes)
        return self._plain_bytes > 0 or self._mapped.find(0, first, last) < 0

    def _return_ram(self, block: "_Range") -> None:
        if self._poison or sys.platform == "win32" or self._buffer is None:
            return
        if self.block_bytes % mmap.PAGESIZE == 0:
            self._buffer.madvise(mmap.MADV_DONTNEED, block.start, self.block_bytes)


class _Range:
    """Bytes from `start` up to and without `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
