"""glm4moe: GLM-4.5, GLM-4.5-Air, GLM-4.6 and relatives."""

from stratadesk.engine.architectures.attention import Attention, AttentionForm, HeadNorm
from stratadesk.engine.architectures.base import FeedForward, Layer
from stratadesk.engine.architectures.feed_forward import (
    DenseFeedForward,
    UngatedSharedMixture,
    is_dense,
)
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.routers import gated_router
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.router_spec import RouterScore


class Glm4Moe(ResidualModel):
    """x += attention(rms(x; attn_norm)); x += feed_forward(rms(x; post_attention_norm)).

    The first `leading_dense_block_count` layers are dense, the others route by sigmoid, with a
    bias for the choice, and add a shared expert. Only the 355B form norms queries and keys.
    """

    def __init__(
        self, header: Hyperparameters, table: TensorTable, vocab_size: int, *, mtp: bool = False
    ) -> None:
        _refuse_vision(header)
        super().__init__(header, table, vocab_size, mtp=mtp)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        normed = table.has(f"{prefix}attn_q_norm.weight")
        form = AttentionForm(norm=HeadNorm.EACH if normed else HeadNorm.NONE)
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps, form),
            table.vector(f"{prefix}post_attention_norm.weight", width),
            self._feed_forward(header, table, index),
        )

    def _feed_forward(self, header: Hyperparameters, table: TensorTable, index: int) -> FeedForward:
        prefix = f"blk.{index}."
        if is_dense(header, table, index):
            inner = header.positive("feed_forward_length")
            return DenseFeedForward(table, prefix, self.width, inner)
        router = gated_router(header, table, prefix, RouterScore.SIGMOID)
        return UngatedSharedMixture(header, table, prefix, self.width, router)


def _refuse_vision(header: Hyperparameters) -> None:
    """Vision models of this family turn sections of a head by positions of their own."""
    sections = header.integers("rope.dimension_sections")
    if len(sections) > 1 and min(sections[:2]) > 0:
        raise UnsupportedModelError(
            f"{header.key('rope.dimension_sections')} says that this is a vision model, which "
            "this version does not run.",
            "Choose a text model of the same family.",
        )


MODEL = Glm4Moe
