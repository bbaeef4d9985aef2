"""The operations a forward pass is written in; each backend implements all of them.

`Tensor`, `Weight` and the other handles belong to the backend: NumPy arrays on the host, device
memory on a GPU. A forward never looks inside one. Tensors are float32 and C-contiguous; T is the
number of tokens of a chunk, a row of a batch is computed exactly as it would be alone.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stratadesk.engine.ops_blocks import BlockOps
from stratadesk.engine.ops_latent import LatentOps
from stratadesk.engine.ops_streams import StreamOps
from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm
from stratadesk.kernels.heads_form import HeadsForm
from stratadesk.kernels.router_spec import RouterSpec

Tensor: TypeAlias = Any
Weight: TypeAlias = Any
ExpertLayer: TypeAlias = Any
Routing: TypeAlias = Any
RopeTable: TypeAlias = Any


class LayerState(Protocol):
    """What a layer keeps between chunks: a KV cache, or a delta net's state."""

    @property
    def n_bytes(self) -> int:
        """Size in bytes, both sides of what is kept twice included."""

    def commit(self) -> None:
        """Make what the last chunk wrote the state that the next one reads."""


class Ops(LatentOps, StreamOps, BlockOps, Protocol):
    """Everything a model family computes with."""

    def weight(
        self, data: npt.NDArray[np.uint8], format_name: str, shape: tuple[int, ...]
    ) -> Weight:
        """Take the bytes of a tensor of row-major `shape` in a GGML format; keeps a view."""

    def dense(self, weight: Weight) -> Tensor:
        """Decode a small weight wholly to float32: [n], or [rows, columns]."""

    def expert_layer(
        self, index: int, parts: Sequence[Weight], form: ExpertForm = PLAIN_EXPERTS
    ) -> ExpertLayer:
        """The experts of the `index`-th layer that has any.

        `parts` are one fused weight [N, 2F, E] or gate and up [N, F, E], then down [N, E, F].
        """

    def beside(self) -> AbstractContextManager[None]:
        """What is computed in a `with` block may run beside all that follows, up to `meet`.

        It needs only what was there before the block, and nothing reads it before `meet`; neither
        ends the scope that both are in.
        """

    def meet(self) -> None:
        """Let what follows come behind the last `beside` block."""

    def scope(self) -> AbstractContextManager[None]:
        """Give back, at the end of a `with` block, the memory of tensors made inside it."""

    def embed(self, weight: Weight, tokens: npt.NDArray[np.int32]) -> Tensor:
        """Rows `tokens` of a matrix, [T, columns]."""

    def linear(self, weight: Weight, x: Tensor) -> Tensor:
        """y[t] = W x[t]; x [T, columns] → [T, rows]."""

    def feed_forward(self, gate: Weight, up: Weight, down: Weight, x: Tensor) -> Tensor:
        """Down · (silu(gate x) ⊙ (up x)), [T, E]."""

    def route(self, logits: Tensor, spec: RouterSpec) -> Routing:
        """Experts and weights of every token from the router's logits [T, N]."""

    def experts(self, layer: ExpertLayer, x: Tensor, chosen: Routing) -> Tensor:
        """Weighted sum of the chosen experts' outputs in router order, [T, E]."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """X / sqrt(mean(x²) + eps) · weight over the last axis."""

    def rms_norm_silu_gate(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        """rms_norm(x) · silu(gate) over the last axis."""

    def rms_norm_sigmoid_gate(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
        """rms_norm(x) · sigmoid(gate) over the last axis."""

    def rope_table(
        self, start: int, count: int, frequencies: npt.NDArray[np.float64], magnitude: float
    ) -> RopeTable:
        """Cos and sin of position · frequency, times `magnitude`, for `count` positions."""

    def rotate_halves(self, x: Tensor, rope: RopeTable) -> None:
        """Rotate pairs (v[i], v[i + pairs]) of x [T, H, d] in place (NEOX form)."""

    def prepare_heads(
        self,
        q: Tensor,
        k: Tensor,
        heads: HeadsForm,
        norms: tuple[Tensor | None, Tensor | None],
        rope: RopeTable,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries [T, H, d], keys [T, G, d] and gates [T, H·d] (None without) from projections.

        Queries and keys of each head are normed with `norms` [d], where those are not None, and
        rotated.
        """

    def split_pairs(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        """Split [T, H·2d], per head d values then d more, into two [T, H, d]."""

    def kv_cache(self, format_name: str, context: int, heads: int, size: int) -> LayerState:
        """An empty KV cache of one layer in format F32, F16 or Q8_0."""

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cache: Any,
        start: int,
        scale: float,
        *,
        window: int = 0,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Store k, v [T, G, d] at `start` and attend causally with q [T, H, d]; [T, H·d].

        A query sees the last `window` tokens, its own among them (0: all). `sinks` [H] are one
        more logit per head that takes part in the softmax but has no value.
        """

    def multiply_sigmoid(self, x: Tensor, gate: Tensor) -> None:
        """X ·= sigmoid(gate) in place."""

    def add(self, x: Tensor, y: Tensor) -> None:
        """X += y in place; y is not to be read afterwards."""

    def add_bias(self, x: Tensor, bias: Tensor) -> None:
        """X[t] += bias [n] in place for every row t; x [T, n]."""

    def add_gated(self, x: Tensor, y: Tensor, gate: Tensor) -> None:
        """X += y · sigmoid(gate) in place, gate [T, 1]; y is not to be read afterwards."""

    def delta_state(self, width: int, channels: int, value_heads: int, size: int) -> LayerState:
        """Zero state of a delta-net layer; its convolution spans `width` tokens."""

    def causal_convolution(self, u: Tensor, weight: Tensor, state: Any) -> Tensor:
        """Silu of the depthwise causal convolution of u [T, channels]; advances the state."""

    def delta_gates(self, beta: Tensor, alpha: Tensor, dt: Tensor, a: Tensor) -> None:
        """In place: beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a); [T, n_v]."""

    def delta_rule(
        self,
        convolved: Tensor,
        beta: Tensor,
        decay: Tensor,
        key_head_of: npt.NDArray[np.int32],
        eps: float,
        state: Any,
    ) -> Tensor:
        """The gated delta rule over q, k, v [T, 2·n_k·S + n_v·S]; advances the state.

        Returns [T, n_v, S].
        """

    def copy(self, x: Tensor, y: Tensor) -> None:
        """X = y in place; y is not to be read afterwards."""

    def concatenate(self, x: Tensor, y: Tensor) -> Tensor:
        """Rows of x, each followed by y's; [T, n] and [T, m] → [T, n + m]."""

    def row_state(self, width: int) -> LayerState:
        """One row carried from chunk to chunk, zero at first."""

    def carried(self, state: Any) -> Tensor:
        """The committed row, [1, n]."""

    def delay(self, x: Tensor, state: Any) -> Tensor:
        """The committed row, then all rows of x but the last; [T, n]."""

    def carry(self, x: Tensor, state: Any) -> None:
        """Note the last row of x [T, n], to be committed."""
