"""qwen35moe: Qwen3.5 and Qwen3.6 mixture-of-experts models (35B-A3B, 122B-A10B, 397B-A17B).

Most layers are gated delta nets, every fourth attends; every layer has routed experts and a
shared one.
"""

from stratadesk.engine.architectures.attention import Attention, AttentionForm
from stratadesk.engine.architectures.base import Layer, Mixer
from stratadesk.engine.architectures.delta_net import DeltaNet
from stratadesk.engine.architectures.feed_forward import SharedExpertMixture
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import GgufError

FORM = AttentionForm(gated=True)


class Qwen35Moe(ResidualModel):
    """x += mixer(rms(x; attn_norm)); x += moe(rms(x; post_attention_norm))."""

    kernels = ("delta_net",)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        if not is_recurrent(header, index):
            return self._attending(header, table, index)
        return self._around(header, table, index, self._delta_net(header, table, f"blk.{index}."))

    def _draft_layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        return self._attending(header, table, index)

    def _attending(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        mixer = Attention(header, table, prefix, width, self.head_size, self.eps, FORM)
        return self._around(header, table, index, mixer)

    def _delta_net(self, header: Hyperparameters, table: TensorTable, prefix: str) -> DeltaNet:
        return DeltaNet(header, table, prefix, self.width, self.eps)

    def _around(
        self, header: Hyperparameters, table: TensorTable, index: int, mixer: Mixer
    ) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            mixer,
            table.vector(f"{prefix}post_attention_norm.weight", width),
            SharedExpertMixture(header, table, prefix, width),
        )


def is_recurrent(header: Hyperparameters, index: int) -> bool:
    """Whether trunk layer `index` is a delta net.

    `attention.recurrent_layers` decides where it is present; else every layer is but each
    `full_attention_interval`-th (absent: 4th).
    """
    listed = header.booleans("attention.recurrent_layers")
    if not listed:
        return (index + 1) % header.positive("full_attention_interval", default=4) != 0
    if index >= len(listed):
        raise GgufError(
            f"{header.key('attention.recurrent_layers')} has {len(listed)} entries, "
            f"layer {index} is not among them."
        )
    return listed[index]


MODEL = Qwen35Moe
