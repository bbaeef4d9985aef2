"""Block-sparse attention: an indexer says which earlier tokens each query sees."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.attention import Attention, AttentionForm
from stratadesk.engine.architectures.base import Chunk
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.errors import GgufError

Rope = tuple[npt.NDArray[np.float64], float]
"""Frequencies and magnitude of rotary embedding."""


@dataclass(frozen=True, slots=True)
class BlockState:
    """A KV cache, and the indexer's state; None when the budget covers the whole context."""

    cache: LayerState
    index: LayerState | None

    @property
    def n_bytes(self) -> int:
        """Bytes of both."""
        return self.cache.n_bytes + (self.index.n_bytes if self.index else 0)

    def commit(self) -> None:
        """Make what the last chunk wrote the state that the next one reads."""
        self.cache.commit()
        if self.index:
            self.index.commit()


class Indexer:
    """Scores complete blocks of r tokens for each query.

        κ_b = rope(rms(mean of W_k h over block b), position b·r);   q = rope(rms(W_q h))
        score_b = Σ_heads max(0, q·κ_b)

    A query sees at most `budget` = top_k + r - 1 tokens, those behind the last complete block
    always.
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        eps: float,
        block: int,
        rope: Rope,
    ) -> None:
        self.eps = eps
        self.block = block
        self.rope = rope
        self.heads = header.positive("attention.indexer.head_count")
        self.size = header.positive("attention.indexer.key_length")
        self.budget = header.positive("attention.indexer.top_k") + block - 1
        if self.size < 2 * rope[0].size:
            raise GgufError(
                f"{header.key('attention.indexer.key_length')} is {self.size}, fewer than the "
                f"{2 * rope[0].size} values that rotate."
            )
        rows = self.heads * self.size
        self.query = table.weight(f"{prefix}indexer.q_proj.weight", rows, width)
        self.key = table.weight(f"{prefix}indexer.k_proj.weight", self.size, width)
        self.query_norm = table.vector(f"{prefix}indexer.q_norm.weight", self.size)
        self.key_norm = table.vector(f"{prefix}indexer.k_norm.weight", self.size)

    def new_state(self, ops: Ops, context: int) -> LayerState | None:
        """No blocks; None where every query sees everything."""
        if self.budget >= context:
            return None
        state: LayerState = ops.index_state(context, self.block, self.size)
        return state

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """Tokens that each row of h [T, E] sees; advances the state."""
        rows = ops.linear(self.key, h)
        ops.index_blocks(rows, self.key_norm, self.eps, self.rope, chunk.start, state)
        q = ops.linear(self.query, h).reshape(h.shape[0], self.heads, self.size)
        q = ops.rms_norm(q, self.query_norm, self.eps)
        ops.rotate_halves(q, chunk.rope)
        return ops.select_keys(q, chunk.start, self.budget, state)


class BlockAttention(Attention):
    """Attention to the tokens that an indexer chooses."""

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        size: int,
        eps: float,
        form: AttentionForm,
        indexer: Indexer,
    ) -> None:
        super().__init__(header, table, prefix, width, size, eps, form)
        self.indexer = indexer

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """An empty KV cache and an indexer without blocks."""
        cache = super().new_state(ops, context, kv_format)
        return BlockState(cache, self.indexer.new_state(ops, context))

    def _attend(
        self,
        ops: Ops,
        h: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        chunk: Chunk,
        state: LayerState,
    ) -> Tensor:
        assert isinstance(state, BlockState)
        if state.index is None:
            return super()._attend(ops, h, qkv, chunk, state.cache)
        visible = self.indexer(ops, h, chunk, state.index)
        scale = 1 / math.sqrt(self.size)
        return ops.attend_to(*qkv, state.cache, chunk.start, scale, visible)
