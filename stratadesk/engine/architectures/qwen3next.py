"""qwen3next: Qwen3-Next-80B-A3B and Qwen3-Coder-Next; qwen35moe with another delta net."""

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.delta_net import DeltaNet
from stratadesk.engine.architectures.qwen35moe import Qwen35Moe
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import Ops, Tensor


class GroupedDeltaNet(DeltaNet):
    """Value head j on key head j // (n_v / n_k); beta and alpha come from one matrix `ssm_ba`.

    For each key head it has the rows of its value heads' betas, then those of their alphas.
    """

    def _take_gates(self, table: TensorTable, prefix: str, width: int) -> None:
        table.refuse(f"{prefix}ssm_in.weight", "queries, keys, values and gates of a delta net")
        self.both = table.weight(f"{prefix}ssm_ba.weight", 2 * self.value_heads, width)

    def _key_heads_of_values(self) -> npt.NDArray[np.int32]:
        share = self.value_heads // self.key_heads
        return np.arange(self.value_heads, dtype=np.int32) // share

    def _gates(self, ops: Ops, h: Tensor) -> tuple[Tensor, Tensor]:
        beta, alpha = ops.split_pairs(ops.linear(self.both, h), self.key_heads)
        shape = (h.shape[0], self.value_heads)
        return beta.reshape(shape), alpha.reshape(shape)


class Qwen3Next(Qwen35Moe):
    """x += mixer(rms(x; attn_norm)); x += moe(rms(x; post_attention_norm))."""

    def _delta_net(self, header: Hyperparameters, table: TensorTable, prefix: str) -> DeltaNet:
        return GroupedDeltaNet(header, table, prefix, self.width, self.eps)


MODEL = Qwen3Next
