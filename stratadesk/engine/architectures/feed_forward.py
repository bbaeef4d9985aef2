"""Dense feed-forward and mixture of experts."""

from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import Ops, Tensor, Weight
from stratadesk.errors import GgufError


class DenseFeedForward:
    """down · (silu(gate h) ⊙ (up h)); `kind` is "" or "_shexp" as in the tensors' names."""

    def __init__(
        self, table: TensorTable, prefix: str, width: int, inner: int, kind: str = ""
    ) -> None:
        self.gate = table.weight(f"{prefix}ffn_gate{kind}.weight", inner, width)
        self.up = table.weight(f"{prefix}ffn_up{kind}.weight", inner, width)
        self.down = table.weight(f"{prefix}ffn_down{kind}.weight", width, inner)

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""
        return ops.feed_forward(self.gate, self.up, self.down, h)


class MixtureOfExperts:
    """Routed experts: softmax over all, the best K, weights divided by their sum."""

    def __init__(
        self, header: Hyperparameters, table: TensorTable, prefix: str, width: int
    ) -> None:
        self.count = header.positive("expert_count")
        self.used = header.positive("expert_used_count")
        if self.used > self.count:
            raise GgufError(
                f"{header.key('expert_used_count')} is {self.used} of {self.count} experts."
            )
        inner = header.positive("expert_feed_forward_length")
        self.router = table.weight(f"{prefix}ffn_gate_inp.weight", self.count, width)
        gate_up = self._gate_up(table, prefix, width, inner)
        down = table.weight(f"{prefix}ffn_down_exps.weight", self.count, width, inner)
        self.experts = table.expert_layer((*gate_up, down))

    def _gate_up(
        self, table: TensorTable, prefix: str, width: int, inner: int
    ) -> tuple[Weight, ...]:
        fused = f"{prefix}ffn_gate_up_exps.weight"
        if table.has(fused):
            return (table.weight(fused, self.count, 2 * inner, width),)
        return (
            table.weight(f"{prefix}ffn_gate_exps.weight", self.count, inner, width),
            table.weight(f"{prefix}ffn_up_exps.weight", self.count, inner, width),
        )

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""
        chosen = ops.route(ops.linear(self.router, h), self.used, True)
        return ops.experts(self.experts, h, chosen)


class SharedExpertMixture(MixtureOfExperts):
    """Routed experts plus one that every token uses, scaled by sigmoid(h · gate vector)."""

    def __init__(
        self, header: Hyperparameters, table: TensorTable, prefix: str, width: int
    ) -> None:
        super().__init__(header, table, prefix, width)
        inner = header.positive("expert_shared_feed_forward_length")
        self.shared = DenseFeedForward(table, prefix, width, inner, "_shexp")
        self.shared_gate = table.weight(f"{prefix}ffn_gate_inp_shexp.weight", width)

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""
        out = super().__call__(ops, h)
        ops.add_gated(out, self.shared(ops, h), ops.linear(self.shared_gate, h))
        return out
