"""The host backend: every operation of a forward pass on NumPy arrays with Numba kernels.

`HostOps` implements `stratadesk.engine.ops.Ops`. Tensors are C-contiguous float32 arrays. It must
be used by one thread at a time: parallel kernels abort on concurrent calls.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host import delta_net, elementwise, routing
from stratadesk.kernels.host.delta_state import HostDeltaState
from stratadesk.kernels.host.experts import (
    ExpertSupplier,
    HostExpertLayer,
    HostRouting,
    MappedExperts,
    Supply,
)
from stratadesk.kernels.host.kv_cache import HostKvCache
from stratadesk.kernels.host.weights import HostWeight, multiply
from stratadesk.kernels.host.workspace import HeapWorkspace, Workspace

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

_FIRST = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class HostRope:
    """Cosine and sine [T, pairs] for the tokens of a chunk."""

    cos: Floats
    sin: Floats


class HostOps:
    """Operations on float32 arrays; see `stratadesk.engine.ops.Ops` for each one's meaning.

    Results are placed in `workspace`; what outlives a pass, such as states, in `resident`.
    `supplier` says where experts lie.
    """

    def __init__(self) -> None:
        self.workspace: Workspace = HeapWorkspace()
        self.resident: Workspace = HeapWorkspace()
        self.supplier: ExpertSupplier = MappedExperts()

    def scope(self) -> AbstractContextManager[None]:
        """Give back at its end what was made inside it."""
        scope: AbstractContextManager[None] = self.workspace.scope()
        return scope

    def weight(
        self, data: npt.NDArray[np.uint8], format_name: str, shape: tuple[int, ...]
    ) -> HostWeight:
        """Wrap the bytes of a tensor; no copy unless they lie unaligned for their units."""
        return HostWeight.wrap(data, format_name, shape)

    def dense(self, weight: HostWeight) -> Floats:
        """Decode a small weight wholly: a vector, or a matrix [rows, columns]."""
        rows = weight.rows * weight.matrices
        out: Floats = self.resident.empty((rows, weight.columns), np.float32)
        _decode_rows(weight, np.arange(rows, dtype=np.int32), out)
        return out.reshape(-1) if rows == 1 else out

    def expert_layer(self, index: int, parts: Sequence[HostWeight]) -> HostExpertLayer:
        """The experts of the `index`-th layer that has any."""
        return HostExpertLayer(index, tuple(parts))

    def embed(self, weight: HostWeight, tokens: Ints) -> Floats:
        """Rows `tokens` of a matrix, [T, columns]."""
        out = self._empty(tokens.size, weight.columns)
        _decode_rows(weight, tokens, out)
        return out

    def linear(self, weight: HostWeight, x: Floats) -> Floats:
        """x · Wᵀ, [T, rows]."""
        out = self._empty(x.shape[0], weight.rows)
        order = np.arange(x.shape[0], dtype=np.int32)
        starts = np.array([0, x.shape[0]], np.int32)
        multiply(weight, weight.addresses(_FIRST), x, 1, (order, starts), out, 0)
        return out

    def feed_forward(self, gate: HostWeight, up: HostWeight, down: HostWeight, x: Floats) -> Floats:
        """down · (silu(gate x) ⊙ (up x)), [T, E]."""
        tokens = x.shape[0]
        order = np.arange(tokens, dtype=np.int32)
        addresses = [weight.addresses(_FIRST) for weight in (gate, up, down)]
        out = self._empty(tokens, down.rows)
        with self.scope():
            sorted_by = (order, np.array([0, tokens], np.int32))
            self._routed((gate, up, down), addresses, x, 1, sorted_by, out)
        return out

    def route(self, logits: Floats, used: int, renormalise: bool) -> HostRouting:
        """Choose `used` experts per token by softmax over all of logits [T, N]."""
        tokens, count = logits.shape
        experts: Ints = self.workspace.empty((tokens, used), np.int32)
        order: Ints = self.workspace.empty((tokens * used,), np.int32)
        weights = self._empty(tokens, used)
        starts = np.empty(count + 1, np.int32)
        routing.route_softmax(logits, renormalise, experts, weights)
        routing.sort_by_expert(experts.reshape(-1), starts, order)
        groups = np.flatnonzero(np.diff(starts)).astype(np.int32)
        bounds = np.append(starts[groups], starts[-1:])
        return HostRouting(experts, weights, order, groups, bounds)

    def experts(self, layer: HostExpertLayer, x: Floats, chosen: HostRouting) -> Floats:
        """Σ_k weight_k · expert_k(x) in router order, [T, E]."""
        width = layer.parts[-1].rows
        out = self._empty(x.shape[0], width)
        with self.scope():
            entries = self._empty(chosen.order.size, width)
            for supply in self.supplier.supply(layer, chosen):
                self._supplied(layer, supply, x, chosen, entries)
            elementwise.weighted_sum(entries, chosen.weights, out)
        return out

    def rms_norm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        """RMS norm over the last axis of x [..., n]."""
        out = self._empty(*x.shape)
        rows = (-1, weight.size)
        elementwise.rms_norm(x.reshape(rows), weight, np.float32(eps), out.reshape(rows))
        return out

    def rms_norm_silu_gate(self, x: Floats, gate: Floats, weight: Floats, eps: float) -> Floats:
        """rms_norm(x) · silu(gate) over the last axis; same shapes."""
        out = self._empty(*x.shape)
        rows = (-1, weight.size)
        elementwise.rms_norm_silu_gate(
            x.reshape(rows), gate.reshape(rows), weight, np.float32(eps), out.reshape(rows)
        )
        return out

    def rope_table(
        self, start: int, count: int, frequencies: npt.NDArray[np.float64], magnitude: float
    ) -> HostRope:
        """Angles of `count` tokens from position `start` on."""
        cos, sin = self._empty(count, frequencies.size), self._empty(count, frequencies.size)
        elementwise.rope_table(start, frequencies, np.float32(magnitude), cos, sin)
        return HostRope(cos, sin)

    def rotate_halves(self, x: Floats, rope: HostRope) -> None:
        """NEOX rotation of x [T, H, d] in place."""
        elementwise.rotate_halves(x, rope.cos, rope.sin)

    def split_pairs(self, x: Floats, heads: int) -> tuple[Floats, Floats]:
        """Split [T, H·2d], per head d values then d more, into two [T, H, d]."""
        pairs = x.reshape(x.shape[0], heads, 2, -1)
        parts = tuple(self._empty(x.shape[0], heads, pairs.shape[3]) for _ in range(2))
        for side, part in enumerate(parts):
            part[:] = pairs[:, :, side]
        return parts[0], parts[1]

    def kv_cache(self, format_name: str, context: int, heads: int, size: int) -> HostKvCache:
        """An undefined KV cache of one layer for `context` tokens."""
        return HostKvCache.create(self.resident, format_name, context, heads, size)

    def attention(
        self, q: Floats, k: Floats, v: Floats, cache: HostKvCache, start: int, scale: float
    ) -> Floats:
        """Store k and v [T, G, d] from token `start` on and attend causally; [T, H·d]."""
        cache.store(start, k, v)
        out = self._empty(*q.shape)
        kept = (cache.keys, cache.values, cache.row_units, cache.heads)
        cache.attention(q, *kept, start, np.float32(scale), out)
        return out.reshape(q.shape[0], -1)

    def multiply_sigmoid(self, x: Floats, gate: Floats) -> None:
        """x ·= sigmoid(gate), same number of values in the same order."""
        elementwise.multiply_sigmoid(x, gate.reshape(x.shape))

    def add(self, x: Floats, y: Floats) -> None:
        """x += y."""
        elementwise.add(x, y)

    def add_gated(self, x: Floats, y: Floats, gate: Floats) -> None:
        """x += y · sigmoid(gate), gate [T, 1]."""
        elementwise.add_gated(x, y, gate)

    def delta_state(self, width: int, channels: int, value_heads: int, size: int) -> HostDeltaState:
        """Zero state of a delta-net layer whose convolution spans `width` tokens."""
        return HostDeltaState(self.resident, width, channels, value_heads, size)

    def causal_convolution(self, u: Floats, weight: Floats, state: HostDeltaState) -> Floats:
        """silu of the depthwise convolution over the state's history and u [T, channels]."""
        out = self._empty(*u.shape)
        delta_net.causal_convolution(state.history, u, weight, out)
        state.write_history(u)
        return out

    def delta_gates(self, beta: Floats, alpha: Floats, dt: Floats, a: Floats) -> None:
        """In place: beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a); [T, n_v]."""
        delta_net.delta_gates(beta, alpha, dt, a)

    def delta_rule(
        self,
        convolved: Floats,
        beta: Floats,
        decay: Floats,
        key_head_of: Ints,
        eps: float,
        state: HostDeltaState,
    ) -> Floats:
        """The gated delta rule over T tokens; [T, n_v, S]."""
        value_heads, size = state.memory.shape[:2]
        key_heads = (convolved.shape[1] // size - value_heads) // 2
        out = self._empty(convolved.shape[0], value_heads, size)
        memories = (state.memory, state.next_memory)
        gates = (convolved, beta, decay, key_head_of, key_heads, np.float32(eps))
        delta_net.delta_steps(*gates, *memories, out)
        return out

    def _empty(self, *shape: int) -> Floats:
        return self.workspace.empty(shape, np.float32)

    def _supplied(
        self,
        layer: HostExpertLayer,
        supply: Supply,
        x: Floats,
        chosen: HostRouting,
        out: Floats,
    ) -> None:
        """Write the outputs of the supplied experts to their entries of out [T·K, E]."""
        sorted_by = chosen.only(supply.positions)
        used = chosen.experts.shape[1]
        with self.scope():
            self._routed(layer.parts, supply.addresses, x, used, sorted_by, out)

    def _routed(
        self,
        parts: Sequence[HostWeight],
        addresses: Sequence[npt.NDArray[np.int64]],
        x: Floats,
        share: int,
        sorted_by: tuple[Ints, Ints],
        out: Floats,
    ) -> None:
        """Feed-forward of every entry: gate and up (or both in one part), SwiGLU, down."""
        *gate_up, down = parts
        width = down.columns
        projected = self._empty(out.shape[0], 2 * width)
        column = 0
        for weight, where in zip(gate_up, addresses, strict=False):
            multiply(weight, where, x, share, sorted_by, projected, column)
            column += weight.rows
        hidden = self._empty(out.shape[0], width)
        elementwise.swiglu(projected, hidden)
        multiply(down, addresses[-1], hidden, 1, sorted_by, out, 0)


def _decode_rows(weight: HostWeight, rows: Ints, out: Any) -> None:
    weight.format.rows(weight.data, weight.row_units, rows, out)
