"""Weights on the host: matrices in the storage units of their format."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.formats import FORMATS, HostFormat

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class HostWeight:
    """`matrices` matrices [rows, columns] one behind the other, read-only.

    `first` [1] is the address of the first one: of `data`, which it is made from.
    """

    format: HostFormat
    data: npt.NDArray[np.generic]
    matrices: int
    rows: int
    columns: int
    first: npt.NDArray[np.int64]

    @classmethod
    def wrap(
        cls, data: npt.NDArray[np.uint8], format_name: str, shape: tuple[int, ...]
    ) -> "HostWeight":
        """View the bytes of a tensor of row-major `shape`; copied only if they lie unaligned."""
        item = FORMATS[format_name]
        if data.ctypes.data % np.dtype(item.unit).alignment:
            data = data.copy()
        units = data.view(item.unit)
        units.flags.writeable = False
        *outer, columns = shape
        matrices = outer[0] if len(outer) == 2 else 1
        first = np.array([units.ctypes.data], np.int64)
        return cls(item, units, matrices, outer[-1] if outer else 1, columns, first)

    @property
    def row_units(self) -> int:
        """Storage units of one row."""
        return self.format.units(self.columns)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of one matrix."""
        return self.rows * self.row_units * self.data.itemsize

    def matrix(self, index: int) -> npt.NDArray[np.uint8]:
        """The bytes of one matrix, uint8 [matrix_bytes], read-only."""
        stored = self.data.view(np.uint8)
        return stored[index * self.matrix_bytes : (index + 1) * self.matrix_bytes]

    def addresses(self, matrices: Ints) -> npt.NDArray[np.int64]:
        """The address of each of these matrices."""
        return self.first + matrices.astype(np.int64) * self.matrix_bytes


def multiply(
    weight: HostWeight,
    addresses: npt.NDArray[np.int64],
    x: Floats,
    share: int,
    sorted_by: tuple[Ints, Ints],
    out: Floats,
    column: int,
) -> None:
    """Multiply with matrices shaped as `weight`'s, wherever they lie: see `matmul.matmul`."""
    item = weight.format
    item.matmul(
        addresses, weight.row_units, item.tile_units, weight.rows, x, share, *sorted_by, out, column
    )
