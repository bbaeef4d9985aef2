"""The part of a weight that belongs to each head."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.weights import HostWeight


@dataclass(frozen=True, slots=True)
class HostHeadRows:
    """Rows `first` … `first + rows` of each of `heads` equal parts of a weight's rows.

    With `transposed` a head multiplies with the transpose of its rows.
    """

    weight: HostWeight
    heads: int
    first: int
    rows: int
    transposed: bool = False

    @property
    def matrix(self) -> HostWeight:
        """A weight shaped as one head's rows; its own data do not matter."""
        return replace(self.weight, matrices=1, rows=self.rows)

    def addresses(self) -> npt.NDArray[np.int64]:
        """Where each head's first row begins."""
        weight = self.weight
        row_bytes = weight.row_units * weight.data.itemsize
        stride = weight.matrices * weight.rows // self.heads
        starts = np.arange(self.heads, dtype=np.int64) * stride + self.first
        addresses: npt.NDArray[np.int64] = weight.data.ctypes.data + starts * row_bytes
        return addresses
