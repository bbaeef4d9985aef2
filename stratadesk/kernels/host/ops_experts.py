"""Host operations: feed-forward, routing, and the routed feed-forward of experts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.expert_form import PLAIN_EXPERTS, Activation, ExpertForm
from stratadesk.kernels.host import biased_experts, elementwise, routing
from stratadesk.kernels.host.experts import HostExpertLayer, HostRouting, Supply
from stratadesk.kernels.host.ops_base import OpsBase, in_order
from stratadesk.kernels.host.weights import HostWeight, multiply
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

_NO_BIAS = np.empty(0, np.float32)
_SCORES = {
    RouterScore.SOFTMAX: routing.SOFTMAX,
    RouterScore.SIGMOID: routing.SIGMOID,
    RouterScore.SELECTED: routing.SELECTED,
}


class ExpertOps(OpsBase):
    """Everything between a layer's normed input and what its feed-forward part adds."""

    def expert_layer(
        self, index: int, parts: Sequence[HostWeight], form: ExpertForm = PLAIN_EXPERTS
    ) -> HostExpertLayer:
        """The experts of the `index`-th layer that has any."""
        return HostExpertLayer(index, tuple(parts), form)

    def feed_forward(self, gate: HostWeight, up: HostWeight, down: HostWeight, x: Floats) -> Floats:
        """down · (silu(gate x) ⊙ (up x)), [T, E]."""
        tokens = x.shape[0]
        layer = HostExpertLayer(0, (gate, up, down), PLAIN_EXPERTS)
        supply = Supply([0], [weight.first for weight in layer.parts])
        sorted_by = in_order(tokens)
        out = self._empty(tokens, down.rows)
        with self.scope():
            self._routed(layer, supply, x, sorted_by[0], sorted_by, out)
        return out

    def route(self, logits: Floats, spec: RouterSpec) -> HostRouting:
        """Choose `spec.used` experts for each row of logits [T, N]."""
        tokens, count = logits.shape
        experts: Ints = self.workspace.empty((tokens, spec.used), np.int32)
        order: Ints = self.workspace.empty((tokens * spec.used,), np.int32)
        weights = self._empty(tokens, spec.used)
        starts = np.empty(count + 1, np.int32)
        bias = _NO_BIAS if spec.selection_bias is None else spec.selection_bias
        how = (_SCORES[spec.score], bias, spec.renormalise, np.float32(spec.scale))
        routing.route(logits, *how, experts, weights)
        routing.sort_by_expert(experts.reshape(-1), starts, order)
        groups = np.flatnonzero(np.diff(starts)).astype(np.int32)
        bounds = np.append(starts[groups], starts[-1:])
        return HostRouting(experts, weights, order, groups, bounds)

    def experts(self, layer: HostExpertLayer, x: Floats, chosen: HostRouting) -> Floats:
        """Σ_k weight_k · expert_k(x) in router order, [T, E]."""
        width = layer.parts[-1].rows
        out = self._empty(x.shape[0], width)
        routed = chosen.experts.reshape(-1)
        with self.scope():
            entries = self._empty(chosen.order.size, width)
            for supply in self.supplier.supply(layer, chosen):
                with self.scope():
                    sorted_by = chosen.only(supply.positions)
                    self._routed(layer, supply, x, routed, sorted_by, entries)
            if layer.form.biases is not None:
                biased_experts.add_expert_bias(entries, 0, layer.form.biases.down, routed)
            elementwise.weighted_sum(entries, chosen.weights, out)
        return out

    def _routed(
        self,
        layer: HostExpertLayer,
        supply: Supply,
        x: Floats,
        routed: Ints,
        sorted_by: tuple[Ints, Ints],
        out: Floats,
    ) -> None:
        """Write the outputs of the supplied experts to their entries of out, [entries, E].

        Gate and up (or both in one part), activation, down; entry s reads row s // K of x and
        goes to expert routed[s].
        """
        *gate_up, down = layer.parts
        share = out.shape[0] // x.shape[0]
        projected = self._empty(out.shape[0], 2 * down.columns)
        column = 0
        for weight, where in zip(gate_up, supply.addresses, strict=False):
            multiply(weight, where, x, share, sorted_by, projected, column)
            column += weight.rows
        hidden = self._empty(out.shape[0], down.columns)
        _activate(layer.form, projected, routed, hidden)
        multiply(down, supply.addresses[-1], hidden, 1, sorted_by, out, 0)


def _activate(form: ExpertForm, projected: Floats, routed: Ints, hidden: Floats) -> None:
    if form.biases is not None:
        biased_experts.add_expert_bias(projected, 0, form.biases.gate, routed)
        biased_experts.add_expert_bias(projected, hidden.shape[1], form.biases.up, routed)
    if form.activation is Activation.CLAMPED:
        biased_experts.clamped_swiglu(projected, hidden)
    else:
        elementwise.swiglu(projected, hidden)
