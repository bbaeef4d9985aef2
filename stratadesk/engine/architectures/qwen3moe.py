"""qwen3moe: Qwen3-30B-A3B, 235B-A22B and coder variants. All layers alike, no shared expert."""

from stratadesk.engine.architectures.attention import Attention
from stratadesk.engine.architectures.base import Layer
from stratadesk.engine.architectures.feed_forward import MixtureOfExperts
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters


class Qwen3Moe(ResidualModel):
    """x += attention(rms(x; attn_norm)); x += moe(rms(x; ffn_norm))."""

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps),
            table.vector(f"{prefix}ffn_norm.weight", width),
            MixtureOfExperts(header, table, prefix, width),
        )


MODEL = Qwen3Moe
