"""The gated delta net: a linear recurrence in place of attention."""

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.base import Chunk
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.errors import GgufError


class DeltaNet:
    """The delta rule with decay and output gate.

    Per token, with value head j on key head j mod n_k and state M_j [S, S]:

        M ← decay · M;  δ = beta (v - Mᵀk);  M ← M + k δᵀ;  o = Mᵀq
        y = W_out (rms(o) ⊙ silu(z))

    q, k, v come from one projection through a causal convolution and silu; q and k have unit
    length, q is also divided by sqrt(S).
    """

    def __init__(
        self, header: Hyperparameters, table: TensorTable, prefix: str, width: int, eps: float
    ) -> None:
        self.eps = eps
        self.span = header.positive("ssm.conv_kernel")
        self.size = header.positive("ssm.state_size")
        self.key_heads = header.positive("ssm.group_count")
        self.value_heads = header.positive("ssm.time_step_rank")
        inner = header.positive("ssm.inner_size")
        _check_sizes(header, self.size, self.key_heads, self.value_heads, inner)
        self.channels = 2 * self.key_heads * self.size + inner
        self._take_gates(table, prefix, width)
        self.qkv = table.weight(f"{prefix}attn_qkv.weight", self.channels, width)
        self.gate = table.weight(f"{prefix}attn_gate.weight", inner, width)
        self.convolution = table.vector(f"{prefix}ssm_conv1d.weight", self.channels, self.span)
        self.dt = table.vector(f"{prefix}ssm_dt.bias", self.value_heads)
        self.a = table.vector(f"{prefix}ssm_a", self.value_heads)
        self.norm = table.vector(f"{prefix}ssm_norm.weight", self.size)
        self.output = table.weight(f"{prefix}ssm_out.weight", width, inner)
        self.key_head_of = self._key_heads_of_values()

    def _take_gates(self, table: TensorTable, prefix: str, width: int) -> None:
        self.beta = table.weight(f"{prefix}ssm_beta.weight", self.value_heads, width)
        self.alpha = table.weight(f"{prefix}ssm_alpha.weight", self.value_heads, width)

    def _key_heads_of_values(self) -> npt.NDArray[np.int32]:
        """The key head of each value head."""
        return np.arange(self.value_heads, dtype=np.int32) % self.key_heads

    def _gates(self, ops: Ops, h: Tensor) -> tuple[Tensor, Tensor]:
        """Beta and alpha before `delta_gates`, [T, n_v] each."""
        return ops.linear(self.beta, h), ops.linear(self.alpha, h)

    def _gated(self, ops: Ops, o: Tensor, z: Tensor) -> Tensor:
        """The value heads' outputs [T, n_v, S], normed and gated."""
        return ops.rms_norm_silu_gate(o, z, self.norm, self.eps)

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """Zero state; its size depends on neither the context nor the KV format."""
        return ops.delta_state(self.span, self.channels, self.value_heads, self.size)

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; advances convolution history and memory."""
        qkv, z = ops.linear(self.qkv, h), ops.linear(self.gate, h)
        beta, alpha = self._gates(ops, h)
        convolved = ops.causal_convolution(qkv, self.convolution, state)
        ops.delta_gates(beta, alpha, self.dt, self.a)
        o = ops.delta_rule(convolved, beta, alpha, self.key_head_of, self.eps, state)
        gated = self._gated(ops, o, z)
        return ops.linear(self.output, gated.reshape(h.shape[0], -1))


def _check_sizes(
    header: Hyperparameters, size: int, key_heads: int, value_heads: int, inner: int
) -> None:
    if inner != value_heads * size or value_heads % key_heads:
        raise GgufError(
            f"{header.key('ssm.inner_size')} is {inner}, which {header.key('ssm.time_step_rank')} "
            f"{value_heads} (a multiple of {header.key('ssm.group_count')} {key_heads}) times "
            f"{header.key('ssm.state_size')} {size} should be."
        )
