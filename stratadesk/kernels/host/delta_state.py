"""The host's state of one delta-net layer, kept twice: as it was committed, and as it becomes."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.workspace import Workspace

Floats = npt.NDArray[np.float32]


class HostDeltaState:
    """Convolution history [C-1, channels] and memory [n_v, S, S], two of each.

    A chunk reads one side and writes the other; `commit` swaps them. Whatever goes wrong before
    leaves the committed side as it was.
    """

    def __init__(
        self, memory: Workspace, width: int, channels: int, value_heads: int, size: int
    ) -> None:
        self._histories: Floats = memory.empty((2, width - 1, channels), np.float32)
        self._memories: Floats = memory.empty((2, value_heads, size, size), np.float32)
        self._side = 0
        self._histories[0] = 0
        self._memories[0] = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of both sides."""
        return self._histories.nbytes + self._memories.nbytes

    @property
    def history(self) -> Floats:
        """The committed last rows before the convolution, oldest first."""
        history: Floats = self._histories[self._side]
        return history

    @property
    def memory(self) -> Floats:
        """The committed memory of every value head, [n_v, S(key), S(value)]."""
        memory: Floats = self._memories[self._side]
        return memory

    @property
    def next_memory(self) -> Floats:
        """Where the memory after the chunk is written."""
        memory: Floats = self._memories[1 - self._side]
        return memory

    def write_history(self, u: Floats) -> None:
        """Note the rows u [T, channels] of a chunk for the one after it."""
        after, past = self._histories[1 - self._side], self.history.shape[0]
        kept = max(0, past - len(u))
        after[:kept] = self.history[past - kept :]
        after[kept:] = u[len(u) - (past - kept) :]

    def commit(self) -> None:
        """Make what the last chunk wrote the state that the next one reads."""
        self._side = 1 - self._side
