"""Host operations of draft heads: joining two tensors, and rows carried from chunk to chunk."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.history import HostHistory
from stratadesk.kernels.host.ops_base import OpsBase

Floats = npt.NDArray[np.float32]


class DraftOps(OpsBase):
    """What a draft head needs besides a layer's operations; nothing here computes."""

    def copy(self, x: Floats, y: Floats) -> None:
        """x = y."""
        np.copyto(x, y)

    def concatenate(self, x: Floats, y: Floats) -> Floats:
        """Rows of x, each followed by y's; [T, n] and [T, m] → [T, n + m]."""
        out = self._empty(x.shape[0], x.shape[1] + y.shape[1])
        out[:, : x.shape[1]] = x
        out[:, x.shape[1] :] = y
        return out

    def row_state(self, width: int) -> HostHistory:
        """One carried row, zero at first."""
        return HostHistory(self.resident, 1, width)

    def carried(self, state: HostHistory) -> Floats:
        """The committed row, [1, n]; a view."""
        return state.rows.view(np.float32)

    def delay(self, x: Floats, state: HostHistory) -> Floats:
        """The committed row, then all rows of x but the last; [T, n]."""
        out = self._empty(*x.shape)
        out[:1] = state.rows
        out[1:] = x[:-1]
        return out

    def carry(self, x: Floats, state: HostHistory) -> None:
        """Note the last row of x [T, n], to be committed."""
        state.write(x)
