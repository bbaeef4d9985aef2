"""Full causal attention with per-head norms, optionally with an output gate."""

import math

from stratadesk.engine.architectures.base import Chunk
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.errors import GgufError, UnsupportedModelError


class Attention:
    """q, k = rope(rms(W h per head)); y = W_o softmax(q·k / sqrt(d)) v.

    With `gated`, `attn_q` holds per head d query rows, then d gate rows, and the heads' outputs
    are multiplied by sigmoid(gate) before `attn_output` (qwen35moe).
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        size: int,
        eps: float,
        *,
        gated: bool = False,
    ) -> None:
        self.heads = header.positive("attention.head_count")
        self.kv_heads = header.positive("attention.head_count_kv", default=self.heads)
        self.size = size
        self.eps = eps
        self.gated = gated
        _check_heads(header, self.heads, self.kv_heads, size)
        query_rows = self.heads * size * (2 if gated else 1)
        self.query = table.weight(f"{prefix}attn_q.weight", query_rows, width)
        self.key = table.weight(f"{prefix}attn_k.weight", self.kv_heads * size, width)
        self.value = table.weight(f"{prefix}attn_v.weight", self.kv_heads * size, width)
        self.query_norm = table.vector(f"{prefix}attn_q_norm.weight", size)
        self.key_norm = table.vector(f"{prefix}attn_k_norm.weight", size)
        self.output = table.weight(f"{prefix}attn_output.weight", width, self.heads * size)

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """An empty KV cache for `context` tokens."""
        return ops.kv_cache(kv_format, context, self.kv_heads, self.size)

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; stores the chunk's keys and values."""
        tokens = h.shape[0]
        projected = ops.linear(self.query, h)
        if self.gated:
            q, gate = ops.split_pairs(projected, self.heads)
        else:
            q, gate = projected.reshape(tokens, self.heads, self.size), None
        k = ops.linear(self.key, h).reshape(tokens, self.kv_heads, self.size)
        v = ops.linear(self.value, h).reshape(tokens, self.kv_heads, self.size)
        q = ops.rms_norm(q, self.query_norm, self.eps)
        k = ops.rms_norm(k, self.key_norm, self.eps)
        ops.rotate_halves(q, chunk.rope)
        ops.rotate_halves(k, chunk.rope)
        o = ops.attention(q, k, v, state, chunk.start, 1 / math.sqrt(self.size))
        if gate is not None:
            ops.multiply_sigmoid(o, gate)
        return ops.linear(self.output, o)


def _check_heads(header: Hyperparameters, heads: int, kv_heads: int, size: int) -> None:
    if heads % kv_heads:
        raise GgufError(
            f"{header.key('attention.head_count')} is {heads}, not a multiple of the "
            f"{kv_heads} kv heads."
        )
    value_size = header.positive("attention.value_length", default=size)
    if value_size != size:
        raise UnsupportedModelError(
            f"Heads have {size} key values but {value_size} values; this version needs both equal."
        )
