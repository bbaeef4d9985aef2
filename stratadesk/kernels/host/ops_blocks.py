"""Operations of block-sparse attention."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host import block_attention
from stratadesk.kernels.host.history import HostHistory
from stratadesk.kernels.host.index_state import HostIndexState
from stratadesk.kernels.host.kv_cache import HostKvCache
from stratadesk.kernels.host.ops_base import OpsBase

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class BlockOps(OpsBase):
    """See `stratadesk.engine.ops_blocks.BlockOps` for each operation's meaning."""

    def index_state(self, context: int, block: int, size: int) -> HostIndexState:
        """Keys of `size` values for the blocks of `context` tokens; none complete."""
        keys = self.resident.empty((context // block, size), np.float32)
        return HostIndexState(block, keys, HostHistory(self.resident, block - 1, size))

    def index_blocks(
        self,
        rows: Floats,
        norm: Floats,
        eps: float,
        rope: tuple[npt.NDArray[np.float64], float],
        start: int,
        state: HostIndexState,
    ) -> None:
        """Make the keys of the blocks that rows [T, d] from token `start` on complete."""
        frequencies, magnitude = rope
        how = (norm, np.float32(eps), frequencies, np.float32(magnitude))
        block_attention.block_keys(state.history.rows, rows, start, state.block, *how, state.keys)
        state.history.write(rows)

    def select_keys(self, queries: Floats, start: int, budget: int, state: HostIndexState) -> Ints:
        """Tokens that queries [T, heads, d] from token `start` on may see, [T, budget]."""
        out: Ints = self.workspace.empty((queries.shape[0], budget), np.int32)
        block_attention.select_keys(queries, state.keys, start, state.block, budget, out)
        return out

    def attend_to(
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        cache: HostKvCache,
        start: int,
        scale: float,
        visible: Ints,
    ) -> Floats:
        """Store k and v [T, G, d] from token `start` on and attend to `visible`; [T, H·d]."""
        cache.store(start, k, v)
        out = self._empty(*q.shape)
        kept = (cache.keys, cache.values, cache.row_units, cache.heads)
        attention = block_attention.ATTEND_TO[cache.format.name]
        attention(q, *kept, start, np.float32(scale), visible, out)
        return out.reshape(q.shape[0], -1)
