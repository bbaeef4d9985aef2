"""olmoe: OLMoE-1B-7B. One norm over all heads; router weights are not renormalised."""

from stratadesk.engine.architectures.attention import Attention, AttentionForm, HeadNorm
from stratadesk.engine.architectures.base import Layer
from stratadesk.engine.architectures.feed_forward import MixtureOfExperts
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.routers import softmax_router
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters

FORM = AttentionForm(norm=HeadNorm.ALL)


class Olmoe(ResidualModel):
    """x += attention(rms(x; attn_norm)); x += moe(rms(x; ffn_norm))."""

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        router = softmax_router(header, renormalise=False)
        inner = header.positive("feed_forward_length")
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps, FORM),
            table.vector(f"{prefix}ffn_norm.weight", width),
            MixtureOfExperts(header, table, prefix, width, router, inner),
        )


MODEL = Olmoe
