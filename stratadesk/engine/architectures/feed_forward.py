"""Dense feed-forward and mixture of experts."""

from stratadesk.engine.architectures.projection import Projection
from stratadesk.engine.architectures.routers import expert_counts, softmax_router
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import Ops, Tensor, Weight
from stratadesk.errors import GgufError
from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm
from stratadesk.kernels.router_spec import RouterSpec


def is_dense(header: Hyperparameters, table: TensorTable, index: int) -> bool:
    """Whether block `index` is among the first `leading_dense_block_count`, which have no experts.

    Raises GgufError when the tensors of the block are those of the other kind.
    """
    name = "leading_dense_block_count"
    count = header.natural(name, default=0)
    dense = index < count
    kinds = (f"blk.{index}.ffn_gate.weight", f"blk.{index}.ffn_gate_inp.weight")
    wanted, other = kinds if dense else kinds[::-1]
    if table.has(other) and not table.has(wanted):
        held = "routes to experts" if dense else "is dense"
        raise GgufError(
            f"{header.key(name)} is {count}, but block {index} {held}: "
            f"the file holds {other} and no {wanted}.",
            "The file does not fit its own header; choose another conversion.",
        )
    return dense


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
    """Routed experts of width `inner` (None: `expert_feed_forward_length`).

    Without a `router`: softmax over all, the best K, weights divided by their sum.
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        router: RouterSpec | None = None,
        inner: int | None = None,
    ) -> None:
        self.count, _ = expert_counts(header)
        self.width = width
        self.inner = inner or header.positive("expert_feed_forward_length")
        self.spec = router or softmax_router(header, renormalise=True)
        self.router = Projection(table, f"{prefix}ffn_gate_inp", self.count, width)
        gate_up = self._gate_up(table, prefix)
        down = table.weight(f"{prefix}ffn_down_exps.weight", self.count, width, self.inner)
        self.experts = table.expert_layer((*gate_up, down), self._form(table, prefix))

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""
        return self._routed(ops, h, self.router(ops, h))

    def _routed(self, ops: Ops, h: Tensor, logits: Tensor) -> Tensor:
        """Weighted sum of the experts that the router's logits [T, N] choose, [T, E]."""
        return ops.experts(self.experts, h, ops.route(logits, self.spec))

    def _form(self, table: TensorTable, prefix: str) -> ExpertForm:
        """What the experts compute besides their products; a family may override it."""
        return PLAIN_EXPERTS

    def _gate_up(self, table: TensorTable, prefix: str) -> tuple[Weight, ...]:
        count, inner, width = self.count, self.inner, self.width
        fused = f"{prefix}ffn_gate_up_exps.weight"
        if table.has(fused):
            return (table.weight(fused, count, 2 * inner, width),)
        return (
            table.weight(f"{prefix}ffn_gate_exps.weight", count, inner, width),
            table.weight(f"{prefix}ffn_up_exps.weight", count, inner, width),
        )


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
        with ops.beside():
            shared = self.shared(ops, h)
        logits, gate = self.router(ops, h), ops.linear(self.shared_gate, h)
        out = self._routed(ops, h, logits)
        ops.meet()
        ops.add_gated(out, shared, gate)
        return out


class UngatedSharedMixture(MixtureOfExperts):
    """Routed experts plus `expert_shared_count` that every token uses, in one feed-forward."""

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        router: RouterSpec,
    ) -> None:
        super().__init__(header, table, prefix, width, router)
        self.shared: DenseFeedForward | None = None
        shared_count = header.natural("expert_shared_count", default=0)
        if shared_count:
            inner = self.inner * shared_count
            self.shared = DenseFeedForward(table, prefix, width, inner, "_shexp")

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""
        if self.shared is None:
            return super().__call__(ops, h)
        with ops.beside():
            shared = self.shared(ops, h)
        out = super().__call__(ops, h)
        ops.meet()
        ops.add(out, shared)
        return out
