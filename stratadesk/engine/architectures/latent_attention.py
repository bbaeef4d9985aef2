"""Multi-head latent attention (MLA) in its absorbed form, which caches one row for all heads."""

import math

from stratadesk.engine.architectures.base import Chunk
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.engine.rope import yarn_logarithm
from stratadesk.errors import GgufError

STORED_LOG_MULTIPLIER = 0.1
"""`rope.scaling.yarn_log_multiplier` is the model's mscale_all_dim times this."""


class LatentAttention:
    """Scores and values from a cached row of c latent and R rotated values.

        q_h = (n plain values, R rotated);  row = (rms(l), rope(r)) with (l, r) = W_kv_a h
        o_h = V_h Σ_j p_j l_j,  p = softmax(scale · (K_hᵀ q_plain · l_j + q_rot · r_j))

    K_h [n, c] and V_h [v, c] come as `attn_k_b` (stored transposed) and `attn_v_b`, or in old
    files as one `attn_kv_b` with n key rows, then v value rows per head.
    """

    def __init__(
        self, header: Hyperparameters, table: TensorTable, prefix: str, width: int, eps: float
    ) -> None:
        self.eps = eps
        self.heads = header.positive("attention.head_count")
        self.latent = header.positive("attention.kv_lora_rank")
        rotated = header.positive("rope.dimension_count")
        size, value = _head_sizes(header)
        self.plain = size - rotated
        if self.plain < 1:
            raise GgufError(
                f"{header.key('rope.dimension_count')} is {rotated}, of heads with {size} values."
            )
        self.row = self.latent + rotated
        self.scale = score_scale(header, size)
        self.query = _Query(header, table, prefix, width, self.heads * size, eps)
        self.compress = table.weight(f"{prefix}attn_kv_a_mqa.weight", self.row, width)
        self.norm = table.vector(f"{prefix}attn_kv_a_norm.weight", self.latent)
        self.keys, self.values = self._decompression(table, prefix, value)
        self.output = table.weight(f"{prefix}attn_output.weight", width, self.heads * value)

    def _decompression(self, table: TensorTable, prefix: str, value: int) -> tuple[Tensor, Tensor]:
        heads, latent, plain = self.heads, self.latent, self.plain
        joined = f"{prefix}attn_kv_b.weight"
        if table.has(joined):
            both = table.weight(joined, heads * (plain + value), latent)
            keys = table.head_rows(both, heads, 0, plain, transposed=True)
            return keys, table.head_rows(both, heads, plain, value)
        k_b = table.weight(f"{prefix}attn_k_b.weight", heads, latent, plain)
        v_b = table.weight(f"{prefix}attn_v_b.weight", heads, value, latent)
        return table.head_rows(k_b, heads, 0, latent), table.head_rows(v_b, heads, 0, value)

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """An empty cache for `context` tokens."""
        state: LayerState = ops.latent_cache(kv_format, context, self.row, self.latent)
        return state

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; stores the chunk's rows."""
        tokens = h.shape[0]
        q = self.query(ops, h).reshape(tokens, self.heads, -1)
        row = ops.linear(self.compress, h)
        ops.norm_prefix(row, self.norm, self.eps)
        ops.rotate_neighbours(q, chunk.rope, self.plain)
        ops.rotate_neighbours(row.reshape(tokens, 1, -1), chunk.rope, self.latent)
        absorbed = ops.absorbed_query(q, self.keys, self.latent)
        o = ops.latent_attention(absorbed, row, state, chunk.start, self.scale)
        return ops.linear(self.output, ops.per_head(self.values, o))


class _Query:
    """Queries of all heads: from one matrix, or through a normed vector of low rank."""

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        rows: int,
        eps: float,
    ) -> None:
        self.eps = eps
        self.norm: Tensor | None = None
        direct = f"{prefix}attn_q.weight"
        if table.has(direct):
            self.matrix = table.weight(direct, rows, width)
            return
        rank = header.positive("attention.q_lora_rank")
        self.compress = table.weight(f"{prefix}attn_q_a.weight", rank, width)
        self.norm = table.vector(f"{prefix}attn_q_a_norm.weight", rank)
        self.matrix = table.weight(f"{prefix}attn_q_b.weight", rows, rank)

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, rows]."""
        if self.norm is not None:
            h = ops.rms_norm(ops.linear(self.compress, h), self.norm, self.eps)
        return ops.linear(self.matrix, h)


def _head_sizes(header: Hyperparameters) -> tuple[int, int]:
    """Values per head of queries, and of what a head puts out.

    Old files, whose `attn_kv_b` is not split, have them under the names without `_mla`.
    """
    size = header.positive("attention.key_length")
    value = header.positive("attention.value_length")
    size = header.positive("attention.key_length_mla", default=size)
    return size, header.positive("attention.value_length_mla", default=value)


def log_multiplier(header: Hyperparameters) -> float:
    """The model's mscale_all_dim, 0 when the file does not say."""
    stored = header.real("rope.scaling.yarn_log_multiplier", default=0.0)
    return stored / STORED_LOG_MULTIPLIER


def score_scale(header: Hyperparameters, size: int) -> float:
    """What scores are multiplied by: 1/sqrt(size), under YaRN with factor f more.

    Then it is (1 + 0.1·L·ln f)² / sqrt(size), L being `log_multiplier`, 1 when that is absent
    (source: llama.cpp's deepseek2 graph).
    """
    grown = 1.0 + 0.1 * (log_multiplier(header) or 1.0) * yarn_logarithm(header)
    return grown * grown / math.sqrt(size)


def rope_magnitude(header: Hyperparameters) -> float:
    """What cosines and sines are multiplied by: 1, but under YaRN without L it is 1 + 0.1·ln f."""
    return 1.0 if log_multiplier(header) else 1.0 + 0.1 * yarn_logarithm(header)
