"""The host's state of one indexer: a key per complete block, and the rows of the one begun."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.history import HostHistory


@dataclass(frozen=True, slots=True)
class HostIndexState:
    """`keys` [blocks, d] for blocks of `block` tokens; `history` keeps the last block - 1 rows."""

    block: int
    keys: npt.NDArray[np.float32]
    history: HostHistory

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and of both sides of the history."""
        return self.keys.nbytes + self.history.n_bytes

    def commit(self) -> None:
        """Keep the last chunk's rows; what lies beyond the blocks completed is never read."""
        self.history.commit()
