"""The host backend: every operation of a forward pass on NumPy arrays with Numba kernels.

`HostOps` implements `stratadesk.engine.ops.Ops`. Tensors are C-contiguous float32 arrays. It must
be used by one thread at a time: parallel kernels abort on concurrent calls.
"""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.heads_form import HeadsForm
from stratadesk.kernels.host import delta_net, elementwise
from stratadesk.kernels.host.delta_state import HostDeltaState
from stratadesk.kernels.host.kv_cache import HostKvCache
from stratadesk.kernels.host.ops_base import HostRope
from stratadesk.kernels.host.ops_blocks import BlockOps
from stratadesk.kernels.host.ops_draft import DraftOps
from stratadesk.kernels.host.ops_experts import ExpertOps
from stratadesk.kernels.host.ops_latent import LatentOps
from stratadesk.kernels.host.ops_streams import StreamOps
from stratadesk.kernels.host.weights import HostWeight

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

_FIRST = np.zeros(1, np.int32)
_NO_SINKS = np.empty(0, np.float32)


class HostOps(ExpertOps, LatentOps, StreamOps, BlockOps, DraftOps):
    """Operations on float32 arrays; see `stratadesk.engine.ops.Ops` for each one's meaning."""

    def weight(
        self, data: npt.NDArray[np.uint8], format_name: str, shape: tuple[int, ...]
    ) -> HostWeight:
        """Wrap the bytes of a tensor; no copy unless they lie unaligned for their units."""
        return HostWeight.wrap(data, format_name, shape)

    def dense(self, weight: HostWeight) -> Floats:
        """Decode a small weight wholly: a vector, or a matrix [rows, columns]."""
        rows = weight.rows * weight.matrices
        out: Floats = self.resident.empty((rows, weight.columns), np.float32)
        self._decode_rows(weight, np.arange(rows, dtype=np.int32), out)
        return out.reshape(-1) if rows == 1 else out

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

    def rms_norm_sigmoid_gate(self, x: Floats, gate: Floats, weight: Floats, eps: float) -> Floats:
        """rms_norm(x) · sigmoid(gate) over the last axis; same shapes."""
        out = self._empty(*x.shape)
        rows = (-1, weight.size)
        delta_net.rms_norm_sigmoid_gate(
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

    def prepare_heads(
        self,
        q: Floats,
        k: Floats,
        heads: HeadsForm,
        norms: tuple[Floats | None, Floats | None],
        rope: HostRope,
    ) -> tuple[Floats, Floats, Floats | None]:
        """Queries, keys and gates of all heads, one operation after the other."""
        gate = None
        if heads.gated:
            q, gate = self.split_pairs(q, heads.queries)
        found = []
        for x, count, norm in zip((q, k), (heads.queries, heads.keys), norms, strict=True):
            rows = x.reshape(x.shape[0], count, heads.size)
            found.append(rows if norm is None else self.rms_norm(rows, norm, heads.eps))
            self.rotate_halves(found[-1], rope)
        return found[0], found[1], gate

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
        self,
        q: Floats,
        k: Floats,
        v: Floats,
        cache: HostKvCache,
        start: int,
        scale: float,
        *,
        window: int = 0,
        sinks: Floats | None = None,
    ) -> Floats:
        """Store k and v [T, G, d] from token `start` on and attend causally; [T, H·d]."""
        cache.store(start, k, v)
        out = self._empty(*q.shape)
        kept = (cache.keys, cache.values, cache.row_units, cache.heads)
        seen = (start, np.float32(scale), window, _NO_SINKS if sinks is None else sinks)
        cache.attention(q, *kept, *seen, out)
        return out.reshape(q.shape[0], -1)

    def multiply_sigmoid(self, x: Floats, gate: Floats) -> None:
        """x ·= sigmoid(gate), same number of values in the same order."""
        elementwise.multiply_sigmoid(x, gate.reshape(x.shape))

    def add(self, x: Floats, y: Floats) -> None:
        """x += y."""
        elementwise.add(x, y)

    def add_bias(self, x: Floats, bias: Floats) -> None:
        """x[t] += bias for every row of x [T, n]."""
        elementwise.add_bias(x, bias)

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
