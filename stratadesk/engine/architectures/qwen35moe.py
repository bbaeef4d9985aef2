"""qwen35moe: Qwen3.5 and Qwen3.6 mixture-of-experts models (35B-A3B, 122B-A10B, 397B-A17B).

Most layers are gated delta nets, every fourth attends; every layer has routed experts and a
shared one. The draft block (`nextn_predict_layers`) is recognised and not run.
"""

from stratadesk.engine.architectures.attention import Attention
from stratadesk.engine.architectures.base import Layer, Mixer
from stratadesk.engine.architectures.delta_net import DeltaNet
from stratadesk.engine.architectures.feed_forward import SharedExpertMixture
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import GgufError


class Qwen35Moe(ResidualModel):
    """x += mixer(rms(x; attn_norm)); x += moe(rms(x; post_attention_norm))."""

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        mixer: Mixer
        if is_recurrent(header, index):
            mixer = DeltaNet(header, table, prefix, width, self.eps)
        else:
            mixer = Attention(header, table, prefix, width, self.head_size, self.eps, gated=True)
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
