"""The last rows of something, kept for the chunk that follows: committed ones, and the next."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.workspace import Workspace

Rows = npt.NDArray[np.generic]


class HostHistory:
    """The last `count` rows of `width` values; before the first token all are `fill`.

    A chunk reads one side and writes the other; `commit` swaps them. Whatever goes wrong before
    leaves the committed side as it was.
    """

    def __init__(
        self,
        memory: Workspace,
        count: int,
        width: int,
        dtype: npt.DTypeLike = np.float32,
        fill: int = 0,
    ) -> None:
        self._sides: Rows = memory.empty((2, count, width), dtype)
        self._side = 0
        self._sides[0] = fill

    @property
    def n_bytes(self) -> int:
        """Bytes of both sides."""
        return self._sides.nbytes

    @property
    def rows(self) -> npt.NDArray[np.generic]:
        """The committed rows, oldest first."""
        rows: Rows = self._sides[self._side]
        return rows

    def write(self, new: Rows) -> None:
        """Note the rows `new` [T, width] of a chunk for the one after it."""
        after, count = self._sides[1 - self._side], self.rows.shape[0]
        kept = max(0, count - len(new))
        after[:kept] = self.rows[count - kept :]
        after[kept:] = new[len(new) - (count - kept) :]

    def commit(self) -> None:
        """Make what the last chunk wrote the rows that the next one reads."""
        self._side = 1 - self._side
