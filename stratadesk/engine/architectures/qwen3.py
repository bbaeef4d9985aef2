"""qwen3: dense Qwen3 models. Attention with per-head norms, then a dense feed-forward."""

from stratadesk.engine.architectures.attention import Attention
from stratadesk.engine.architectures.base import Layer
from stratadesk.engine.architectures.feed_forward import DenseFeedForward
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters


class Qwen3(ResidualModel):
    """x += attention(rms(x; attn_norm)); x += feed_forward(rms(x; ffn_norm))."""

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        inner = header.positive("feed_forward_length")
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps),
            table.vector(f"{prefix}ffn_norm.weight", width),
            DenseFeedForward(table, prefix, width, inner),
        )


MODEL = Qwen3
