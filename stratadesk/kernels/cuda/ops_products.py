"""CUDA operations that multiply with weights: embedding, linear layers, routers and experts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import THREADS, WARP, WARPS, OpsBase, blocks
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight, fixed_row_bytes
from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

MOST_TOKENS = 8
"""Tokens of a pass at most: what the kernels for products are made for."""

BUSY_WARPS = 2_048
"""Warps that keep the memory of a large card busy."""

GATED_WARPS, DOWN_WARPS = 16, 8
"""Warps of a block of the kernels for gate and up, and of that for experts' down."""

ROWS = 4
"""Rows that a group of lanes computes at once."""

MOST_EXPERTS, MOST_USED = 1_024, 32
"""What the router's kernel holds in registers."""

_SCORES = {RouterScore.SOFTMAX: 0, RouterScore.SIGMOID: 1, RouterScore.SELECTED: 2}


@dataclass(frozen=True, slots=True)
class DeviceExperts:
    """The experts of a layer: their parts, and a table of addresses [experts, parts], uint64."""

    index: int
    parts: tuple[DeviceWeight, ...]
    places: int

    @property
    def inner(self) -> int:
        """Width of an expert's hidden values."""
        return self.parts[-1].columns


@dataclass(frozen=True, slots=True)
class DeviceRouting:
    """Experts int32 and weights of every token, both [T, used]."""

    experts: DeviceTensor
    weights: DeviceTensor


@dataclass(slots=True)
class _Products:
    """Up to four products of one x with weights of one format.

    The only one of a launch may be multiplied by sigmoid(gate), then summed with `base`, then
    added to what its target holds.
    """

    ops: "ProductOps"
    address: int
    x: DeviceTensor
    weights: list[DeviceWeight]
    outs: list[DeviceTensor]
    gate: DeviceTensor | None = None
    base: DeviceTensor | None = None
    onto: bool = False

    @property
    def added(self) -> bool:
        """Whether anything is done with the product already."""
        return self.gate is not None or self.base is not None or self.onto

    def takes(self, weight: DeviceWeight, x: DeviceTensor) -> bool:
        """Whether a product can be computed in the same launch."""
        alike = weight.format_name == self.weights[0].format_name and x == self.x
        return alike and len(self.weights) < 4 and not self.added

    def makes_only(self, y: DeviceTensor) -> bool:
        """Whether `y` is all that this computes."""
        return len(self.outs) == 1 and self.outs[0].address == y.address

    def add_to(self, x: DeviceTensor, gate: DeviceTensor | None) -> bool:
        """Take over x += y (· sigmoid(gate)) if that is still possible."""
        if gate is not None:
            if self.added:
                return False
            # The sum with x is kept apart from x until it is known whether that is its last place.
            self.gate, self.base, self.outs[0] = gate, x, x
            return True
        if self.onto:
            return False
        self.outs[0], self.onto = x, True
        return True

    def launch(self) -> None:
        """Compute them."""
        tokens, weight = self.x.shape[0], self.weights[0]
        ends = list(accumulate(each.rows for each in self.weights))
        missing = 4 - len(ends)
        width = _lanes(weight, WARPS * WARP, ends[-1])
        self.ops._launch(
            programs.weights(weight.format_name),
            "multiply_1" if tokens == 1 else "multiply_4",
            (blocks(ends[-1], ROWS * WARPS * WARP // width),),
            WARPS * WARP,
            *(*(each.address for each in self.weights), *[0] * missing),
            *(*self.outs, *[0] * missing, *ends, *[ends[-1]] * missing),
            *(self.address, weight.columns, tokens, width),
            *(self.gate or 0, self.base or 0, int(self.onto)),
        )


@dataclass(slots=True)
class _ExpertSum:
    """The down products of experts and their sum.

    To that may be added `beside` · sigmoid(gate), and then what its target holds.
    """

    ops: "ProductOps"
    layer: DeviceExperts
    chosen: DeviceRouting
    hidden: int
    out: DeviceTensor
    beside: DeviceTensor | None = None
    gate: DeviceTensor | None = None
    onto: bool = False

    def makes_only(self, y: DeviceTensor) -> bool:
        """Whether `y` is what this computes."""
        return self.out.address == y.address

    def add_to(self, x: DeviceTensor, gate: DeviceTensor | None) -> bool:
        """Take over x += y if that is still possible."""
        if gate is not None or self.onto:
            return False
        self.out, self.onto = x, True
        return True

    def take(self, y: DeviceTensor, gate: DeviceTensor) -> bool:
        """Take over the sum with y · sigmoid(gate) if that is still possible."""
        if self.beside is not None or self.onto:
            return False
        self.beside, self.gate = y, gate
        return True

    def launch(self) -> None:
        """Compute it."""
        tokens, used = self.chosen.experts.shape
        down, parts = self.layer.parts[-1], len(self.layer.parts)
        width = _lanes(down, WARP)
        self.ops._launch(
            programs.weights(down.format_name),
            "expert_down",
            (blocks(down.rows, ROWS * WARP // width), tokens),
            DOWN_WARPS * WARP,
            *(self.layer.places, parts, self.chosen.experts, self.chosen.weights, used),
            *(self.hidden, self.out, down.rows, down.columns, width),
            *(self.beside or 0, self.gate or 0, int(self.onto)),
        )


class ProductOps(OpsBase):
    """Everything that reads blocks of weights."""

    def weight(self, address: int, format_name: str, shape: tuple[int, ...]) -> DeviceWeight:
        """A tensor whose bytes lie at `address`."""
        return DeviceWeight(format_name, address, shape)

    def expert_layer(
        self, index: int, parts: Sequence[DeviceWeight], form: ExpertForm = PLAIN_EXPERTS
    ) -> DeviceExperts:
        """The experts of the `index`-th layer that has any, all of them where `parts` lie.

        Raises UnsupportedModelError for biases and other activations.
        """
        if form != PLAIN_EXPERTS:
            raise UnsupportedModelError(
                "This version does not compute these experts on a graphics card.",
                "Use --device host.",
            )
        experts = np.arange(parts[0].matrices, dtype=np.uint64)[:, None]
        starts = np.array([part.address for part in parts], np.uint64)
        sizes = np.array([part.matrix_bytes for part in parts], np.uint64)
        places = self.constant((starts + experts * sizes).view(np.int32))
        return DeviceExperts(index, tuple(parts), places.address)

    def embed(self, weight: DeviceWeight, tokens: npt.NDArray[np.int32]) -> DeviceTensor:
        """Rows of a matrix, [T, columns]; which ones is read from the step's tokens."""
        count = len(tokens)
        out = self.workspace.tensor(count, weight.columns)
        self._rows(weight, self.step.tokens, count, out)
        return out

    def linear(self, weight: DeviceWeight, x: DeviceTensor) -> DeviceTensor:
        """x · Wᵀ, [T, rows]. Products of one x that follow each other are one launch."""
        if x.shape[0] > MOST_TOKENS:
            raise ValueError(f"{x.shape[0]} tokens, {MOST_TOKENS} at most")
        out = self.workspace.tensor(x.shape[0], weight.rows)
        waiting = self._waiting
        if isinstance(waiting, _Products) and waiting.takes(weight, x):
            waiting.weights.append(weight)
            waiting.outs.append(out)
        else:
            self._wait(_Products(self, self._prepared(weight, x), x, [weight], [out]))
        return out

    def _prepared(self, weight: DeviceWeight, x: DeviceTensor) -> int:
        """The address of x in the form that products with `weight` read."""
        if weight.format_name in programs.FLOATS:
            return x.address
        if x.fixed:
            return x.fixed
        tokens, columns = x.shape[0], x.size // x.shape[0]
        fixed = self.workspace.take(tokens * fixed_row_bytes(columns))
        self._each(programs.VECTORS, "fix", x.size, x, fixed, columns)
        return fixed

    def _joins_product(
        self, x: DeviceTensor, y: DeviceTensor, gate: DeviceTensor | None = None
    ) -> bool:
        """Whether x += y (· sigmoid(gate)) is left to the launch that makes y, which waits."""
        waiting = self._waiting
        if not isinstance(waiting, _Products | _ExpertSum) or not waiting.makes_only(y):
            return False
        return waiting.add_to(x, gate)

    def _joins_experts(self, x: DeviceTensor, y: DeviceTensor, gate: DeviceTensor) -> bool:
        """Whether x += y · sigmoid(gate) is left to the experts that make x, which wait."""
        waiting = self._waiting
        if not isinstance(waiting, _ExpertSum) or not waiting.makes_only(x):
            return False
        return waiting.take(y, gate)

    def _lands_in(self, x: DeviceTensor, y: DeviceTensor) -> bool:
        """Whether x = y is done by letting the product that makes y write to x."""
        waiting = self._waiting
        if not isinstance(waiting, _Products) or not waiting.makes_only(y) or waiting.added:
            return False
        waiting.outs[-1] = x
        return True

    def feed_forward(
        self, gate: DeviceWeight, up: DeviceWeight, down: DeviceWeight, x: DeviceTensor
    ) -> DeviceTensor:
        """down · (silu(gate x) ⊙ (up x)), [T, E]."""
        tokens = x.shape[0]
        hidden = self.workspace.tensor_and_fixed(tokens, gate.rows)
        if gate.format_name == up.format_name:
            width = _lanes(gate, WARP)
            self._launch(
                programs.weights(gate.format_name),
                "gated_1" if tokens == 1 else "gated_4",
                (blocks(gate.rows, _gated_rows(width)),),
                GATED_WARPS * WARP,
                *(gate.address, up.address, self._prepared(gate, x), hidden, hidden.fixed),
                *(gate.rows, gate.columns, tokens, width),
            )
        else:
            self._swiglu(self.linear(gate, x), self.linear(up, x), hidden)
        return self.linear(down, hidden)

    def _swiglu(self, gate: DeviceTensor, up: DeviceTensor, hidden: DeviceTensor) -> None:
        columns = hidden.shape[-1]
        made = (gate, up, hidden, hidden.fixed, columns)
        self._each(programs.VECTORS, "swiglu", hidden.size, *made)

    def route(self, logits: DeviceTensor, spec: RouterSpec) -> DeviceRouting:
        """Choose `spec.used` experts for each row of logits [T, N]."""
        tokens, count = logits.shape
        if count > MOST_EXPERTS or spec.used > MOST_USED:
            raise UnsupportedModelError(
                f"{count} experts, {spec.used} of them used, are more than the {MOST_EXPERTS} and "
                f"{MOST_USED} that this version routes on a graphics card.",
                "Use --device host.",
            )
        experts = self.workspace.tensor(tokens, spec.used)
        weights = self.workspace.tensor(tokens, spec.used)
        bias = 0 if spec.selection_bias is None else spec.selection_bias
        how = (_SCORES[spec.score], int(spec.renormalise), float(spec.scale))
        self._launch(
            programs.ROUTER,
            "route",
            (tokens,),
            -(-count // WARP) * WARP,
            logits,
            bias,
            experts,
            weights,
            count,
            spec.used,
            *how,
        )
        return DeviceRouting(experts, weights)

    def experts(self, layer: DeviceExperts, x: DeviceTensor, chosen: DeviceRouting) -> DeviceTensor:
        """Σ_k weight_k · expert_k(x) in router order, [T, E]."""
        out = self.workspace.tensor(x.shape[0], layer.parts[-1].rows)
        with self.scope():
            hidden = self._expert_hidden(layer, x, chosen)
            down = self._prepared(layer.parts[-1], hidden)
            self._wait(_ExpertSum(self, layer, chosen, down, out))
        return out

    def _expert_hidden(
        self, layer: DeviceExperts, x: DeviceTensor, chosen: DeviceRouting
    ) -> DeviceTensor:
        """silu(gate x) ⊙ (up x) of every entry, [T · used, F]."""
        entries, used = chosen.experts.size, chosen.experts.shape[1]
        rows, parts, routed = layer.inner, len(layer.parts), chosen.experts
        gate, up = layer.parts[0], layer.parts[-2]
        hidden = self.workspace.tensor_and_fixed(entries, rows)
        if gate.format_name == up.format_name:
            width = _lanes(gate, WARP)
            self._launch(
                programs.weights(gate.format_name),
                "expert_gated",
                (blocks(rows, _gated_rows(width)), entries),
                GATED_WARPS * WARP,
                *(layer.places, parts, routed, used, self._prepared(gate, x), hidden),
                *(hidden.fixed, rows, gate.columns, width),
            )
            return hidden
        both = [self.workspace.tensor(entries, rows) for _ in range(2)]
        for part, out in enumerate(both):
            weight = layer.parts[part]
            width = _lanes(weight, WARPS * WARP)
            self._launch(
                programs.weights(weight.format_name),
                "expert_multiply",
                (blocks(rows, ROWS * WARPS * WARP // width), entries),
                WARPS * WARP,
                *(layer.places, parts, part, routed, used, self._prepared(weight, x), out),
                *(rows, weight.columns, width),
            )
        self._swiglu(both[0], both[1], hidden)
        return hidden

    def decode_rows(self, weight: DeviceWeight, ids: DeviceTensor) -> DeviceTensor:
        """Rows `ids` (int32) of a matrix, as the reference decodes them, [ids, columns]."""
        out = self.workspace.tensor(ids.size, weight.columns)
        self._rows(weight, ids.address, ids.size, out)
        return out

    def _rows(self, weight: DeviceWeight, ids: int, count: int, out: DeviceTensor) -> None:
        parts = -(-weight.columns // 4)
        grid = (blocks(parts, THREADS), count)
        program = programs.weights(weight.format_name)
        self._launch(program, "rows", grid, THREADS, weight.address, ids, out, weight.columns)


def _lanes(weight: DeviceWeight, most: int, rows: int = 0) -> int:
    """How many lanes share a row: one for each of its parts, 4 to `most`.

    More than a warp only where `rows`, taken ROWS at once, would leave a card idle: a lane that
    takes several parts spreads the cost of a row's beginning and end.
    """
    parts = weight.columns // programs.values_of_a_lane(weight.format_name)
    lanes = 4
    while lanes < min(parts, most) and (lanes < WARP or rows * lanes < ROWS * WARP * BUSY_WARPS):
        lanes *= 2
    return lanes


def _gated_rows(width: int) -> int:
    """Rows of a block of the kernels for gate and up, whose groups have `width` lanes."""
    return max(WARP, ROWS // 2 * GATED_WARPS * WARP // width)
