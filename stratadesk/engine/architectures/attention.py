"""Full causal attention, with what families add to it: norms, gates, windows, sinks, biases."""

import math
from dataclasses import dataclass
from enum import Enum

from stratadesk.engine.architectures.base import Chunk
from stratadesk.engine.architectures.projection import Projection
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.kernels.heads_form import HeadsForm


class HeadNorm(Enum):
    """What of queries and keys is normed before RoPE: nothing, each head, or all heads at once."""

    NONE = "none"
    EACH = "each"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """How a family attends.

    `gated`: `attn_q` holds per head d query rows, then d gate rows, and the heads' outputs are
    multiplied by sigmoid(gate) before `attn_output`. A token sees the last `window` ones, its own
    among them (0: all). `sinks`: `attn_sinks` is one more logit per head, without a value.
    """

    norm: HeadNorm = HeadNorm.EACH
    gated: bool = False
    window: int = 0
    sinks: bool = False


PLAIN_ATTENTION = AttentionForm()


class Attention:
    """q, k = rope(rms(W h per head)); y = W_o softmax(q·k / sqrt(d)) v, changed as `form` says.

    Projections have biases where the file holds them.
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        size: int,
        eps: float,
        form: AttentionForm = PLAIN_ATTENTION,
    ) -> None:
        self.heads = header.positive("attention.head_count")
        self.kv_heads = header.positive("attention.head_count_kv", default=self.heads)
        self.size = size
        self.eps = eps
        self.form = form
        _check_header(header, self.heads, self.kv_heads, size)
        table.refuse(f"{prefix}attn_qkv.weight", "one matrix for queries, keys and values")
        inner, kv_inner = self.heads * size, self.kv_heads * size
        query_rows = 2 * inner if form.gated else inner
        self.query = Projection(table, f"{prefix}attn_q", query_rows, width)
        self.key = Projection(table, f"{prefix}attn_k", kv_inner, width)
        self.value = Projection(table, f"{prefix}attn_v", kv_inner, width)
        self.query_norm = self._norm(table, f"{prefix}attn_q_norm.weight", inner)
        self.key_norm = self._norm(table, f"{prefix}attn_k_norm.weight", kv_inner)
        self.sinks: Tensor | None = None
        if form.sinks:
            self.sinks = table.vector(f"{prefix}attn_sinks.weight", self.heads)
        self.output = Projection(table, f"{prefix}attn_output", width, inner)

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """An empty KV cache for `context` tokens."""
        return ops.kv_cache(kv_format, context, self.kv_heads, self.size)

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; stores the chunk's keys and values."""
        q, k, v = self.query(ops, h), self.key(ops, h), self.value(ops, h)
        norms = self.query_norm, self.key_norm
        if self.form.norm is HeadNorm.ALL:
            q, k = (ops.rms_norm(x, norm, self.eps) for x, norm in zip((q, k), norms, strict=True))
            norms = None, None
        heads = HeadsForm(self.heads, self.kv_heads, self.size, self.form.gated, self.eps)
        q, k, gate = ops.prepare_heads(q, k, heads, norms, chunk.rope)
        o = self._attend(ops, h, (q, k, v.reshape(k.shape)), chunk, state)
        if gate is not None:
            ops.multiply_sigmoid(o, gate)
        return self.output(ops, o)

    def _attend(
        self,
        ops: Ops,
        h: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        chunk: Chunk,
        state: LayerState,
    ) -> Tensor:
        """[T, H·d] from rotated queries and keys; a subclass may choose by h what they see."""
        scale, window = 1 / math.sqrt(self.size), self.form.window
        return ops.attention(*qkv, state, chunk.start, scale, window=window, sinks=self.sinks)

    def _norm(self, table: TensorTable, name: str, inner: int) -> Tensor | None:
        if self.form.norm is HeadNorm.NONE:
            return None
        return table.vector(name, self.size if self.form.norm is HeadNorm.EACH else inner)


def _check_header(header: Hyperparameters, heads: int, kv_heads: int, size: int) -> None:
    if heads % kv_heads:
        raise GgufError(
            f"{header.key('attention.head_count')} is {heads}, not a multiple of the "
            f"{kv_heads} kv heads."
        )
    value_size = header.positive("attention.value_length", default=size)
    if value_size != size:
        raise UnsupportedModelError(
            f"{header.key('attention.value_length')} is {value_size}, but keys have {size} "
            "values a head; this version needs both equal."
        )
    if header.real("attention.clamp_kqv", default=0.0) > 0:
        raise UnsupportedModelError(
            f"{header.key('attention.clamp_kqv')} limits queries, keys and values, which this "
            "version does not compute."
        )
