"""gpt-oss: gpt-oss-20b and gpt-oss-120b. Windows, sinks, biases, and a clamped activation."""

from stratadesk.engine.architectures.attention import Attention, AttentionForm, HeadNorm
from stratadesk.engine.architectures.base import Layer
from stratadesk.engine.architectures.feed_forward import MixtureOfExperts
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.routers import expert_counts
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.windows import is_windowed
from stratadesk.kernels.expert_form import Activation, ExpertBiases, ExpertForm
from stratadesk.kernels.router_spec import RouterScore, RouterSpec


class GptOss(ResidualModel):
    """x += attention(rms(x; attn_norm)); x += moe(rms(x; post_attention_norm))."""

    kernels = ("biased_experts",)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        window = header.positive("attention.sliding_window") if is_windowed(header, index) else 0
        form = AttentionForm(norm=HeadNorm.NONE, window=window, sinks=True)
        router = RouterSpec(expert_counts(header)[1], RouterScore.SELECTED)
        return Layer(
            table.vector(f"{prefix}attn_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps, form),
            table.vector(f"{prefix}post_attention_norm.weight", width),
            BiasedExperts(header, table, prefix, width, router),
        )


class BiasedExperts(MixtureOfExperts):
    """The best K of logits and bias, softmax over these; experts with biases of their own."""

    def _form(self, table: TensorTable, prefix: str) -> ExpertForm:
        biases = ExpertBiases(
            gate=table.vector(f"{prefix}ffn_gate_exps.bias", self.count, self.inner),
            up=table.vector(f"{prefix}ffn_up_exps.bias", self.count, self.inner),
            down=table.vector(f"{prefix}ffn_down_exps.bias", self.count, self.width),
        )
        return ExpertForm(Activation.CLAMPED, biases)


MODEL = GptOss
