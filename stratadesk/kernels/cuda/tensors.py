"""Tensors, weights and workspaces on the device: addresses with shapes, never an array."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

FIXED_BLOCK = 32
"""Values that share a scale in fixed point."""

FIXED_TILE, FIXED_TILE_BYTES = 256, 1_024
"""Values of a tile of a row in fixed point, and its bytes; the last tile of a row is whole too."""

LINE = 256
"""Tensors begin at multiples of this many bytes: whole sectors, and room for 16-byte loads."""


def fixed_row_bytes(columns: int) -> int:
    """Bytes of a row of `columns` values (a multiple of 32) in fixed point; see src/fixed.cuh."""
    return -(-columns // FIXED_TILE) * FIXED_TILE_BYTES


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """C-contiguous values of 4 bytes (float32 or int32) at `address`.

    At `fixed`, unless that is 0, the same values lie in fixed point (see src/fixed.cuh), a row for
    each index of the first axis.
    """

    address: int
    shape: tuple[int, ...]
    fixed: int = 0

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def reshape(self, *shape: int | tuple[int, ...]) -> "DeviceTensor":
        """The same values in another shape, of which one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        known = [int(size) for size in sizes]  # type: ignore[arg-type]
        if -1 in known:
            rest = self.size // math.prod(size for size in known if size != -1)
            known[known.index(-1)] = rest
        if math.prod(known) != self.size:
            raise ValueError(f"{self.shape} cannot be reshaped to {tuple(known)}")
        same_rows = bool(known) and known[0] == self.shape[0]
        return DeviceTensor(self.address, tuple(known), self.fixed if same_rows else 0)

    def first_rows(self, count: int) -> "DeviceTensor":
        """The first `count` rows of the first axis."""
        return DeviceTensor(self.address, (count, *self.shape[1:]), self.fixed)

    def row(self, index: int) -> "DeviceTensor":
        """Row `index` of the first axis, [1, …]; negative ones count from the end."""
        rest = self.shape[1:]
        first, width = index % self.shape[0], math.prod(rest)
        fixed = self.fixed + first * fixed_row_bytes(width) if self.fixed else 0
        return DeviceTensor(self.address + 4 * first * width, (1, *rest), fixed)


@dataclass(frozen=True, slots=True)
class DeviceWeight:
    """A tensor's blocks at `address` (device, or host memory that the device reads).

    `shape` is row-major; all axes but the last two count matrices.
    """

    format_name: str
    address: int
    shape: tuple[int, ...]

    @property
    def columns(self) -> int:
        """Values of a row."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows of a matrix; 1 for a vector."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def matrices(self) -> int:
        """Number of matrices."""
        return math.prod(self.shape[:-2])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        values, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[self.format_name]]
        return self.columns // int(values) * int(n_bytes)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of a matrix."""
        return self.rows * self.row_bytes


class DeviceWorkspace:
    """Places tensors one behind the other in `size` bytes at `address`; allocates nothing.

    `peak` is the largest number of bytes that were in use at once.
    """

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.peak = 0
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes given out now, up to the next tensor's place."""
        return self._used

    def take(self, n_bytes: int) -> int:
        """The address of `n_bytes` more.

        Raises RuntimeError with both sizes when the workspace is full: a plan that reserved too
        little.
        """
        address, end = self.address + self._used, self._used + n_bytes
        if end > self.size:
            raise RuntimeError(f"a workspace of {self.size} bytes cannot hold {end}")
        self._used = -(-end // LINE) * LINE
        self.peak = max(self.peak, end)
        return address

    def tensor(self, *shape: int) -> DeviceTensor:
        """An undefined tensor."""
        return DeviceTensor(self.take(4 * math.prod(shape)), shape)

    def tensor_and_fixed(self, *shape: int) -> DeviceTensor:
        """An undefined tensor that also has its values in fixed point, if rows are whole 32s."""
        width = math.prod(shape[1:])
        plain = self.tensor(*shape)
        if width % FIXED_BLOCK:
            return plain
        return DeviceTensor(plain.address, shape, self.take(shape[0] * fixed_row_bytes(width)))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back, at the end of the `with` block, what was made in it."""
        used = self._used
        try:
            yield
        finally:
            self._used = used
