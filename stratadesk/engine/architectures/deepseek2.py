"""deepseek2: DeepSeek-V2 and V3, their relatives, and GLM-4.7-Flash."""

from stratadesk.engine.architectures.base import FeedForward, Layer
from stratadesk.engine.architectures.feed_forward import (
    DenseFeedForward,
    UngatedSharedMixture,
    is_dense,
)
from stratadesk.engine.architectures.latent_attention import LatentAttention, rope_magnitude
from stratadesk.engine.architectures.residual import ResidualModel, block_counts
from stratadesk.engine.architectures.routers import gated_router
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.kernels.router_spec import RouterScore

GLM_FLASH_LAYERS = (47, 48)
GLM_FLASH_VOCABULARY = 154_880
"""How llama.cpp knows GLM-4.7-Flash, whose first files do not say how their router scores."""


class Deepseek2(ResidualModel):
    """x += latent_attention(rms(x; attn_norm)); x += feed_forward(rms(x; ffn_norm)).

    The first `leading_dense_block_count` layers are dense, the others add a shared expert.
    """

    kernels = ("latent_attention",)

    def __init__(
        self, header: Hyperparameters, table: TensorTable, vocab_size: int, *, mtp: bool = False
    ) -> None:
        super().__init__(header, table, vocab_size, mtp=mtp)
        self.magnitude = rope_magnitude(header)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            LatentAttention(header, table, prefix, width, self.eps),
            table.vector(f"{prefix}ffn_norm.weight", width),
            self._feed_forward(header, table, index),
        )

    def _feed_forward(self, header: Hyperparameters, table: TensorTable, index: int) -> FeedForward:
        prefix = f"blk.{index}."
        if is_dense(header, table, index):
            inner = header.positive("feed_forward_length")
            return DenseFeedForward(table, prefix, self.width, inner)
        usual = self._usual_score(header)
        router = gated_router(header, table, prefix, usual)
        return UngatedSharedMixture(header, table, prefix, self.width, router)

    def _usual_score(self, header: Hyperparameters) -> RouterScore:
        """The score where `expert_gating_func` is absent."""
        trunk, _ = block_counts(header)
        flash = trunk in GLM_FLASH_LAYERS and self.vocab_size == GLM_FLASH_VOCABULARY
        return RouterScore.SIGMOID if flash else RouterScore.SOFTMAX


MODEL = Deepseek2
