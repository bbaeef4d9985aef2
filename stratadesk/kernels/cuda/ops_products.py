"""CUDA operations that multiply with weights: embedding, linear layers, routers and experts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import THREADS, WARP, WARPS, OpsBase, blocks
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight
from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

MOST_TOKENS = 8
"""Tokens of a pass at most: what the kernels for products are made for."""

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
        """x · Wᵀ, [T, rows]."""
        tokens = x.shape[0]
        out = self.workspace.tensor(tokens, weight.rows)
        name, rows = _by_tokens("multiply", tokens)
        self._launch(
            programs.weights(weight.format_name),
            name,
            (blocks(weight.rows, WARPS * rows),),
            WARPS * WARP,
            *(weight.address, x, out, weight.rows, weight.columns, tokens, 0),
        )
        return out

    def feed_forward(
        self, gate: DeviceWeight, up: DeviceWeight, down: DeviceWeight, x: DeviceTensor
    ) -> DeviceTensor:
        """down · (silu(gate x) ⊙ (up x)), [T, E]."""
        tokens = x.shape[0]
        hidden = self.workspace.tensor(tokens, gate.rows)
        if gate.format_name == up.format_name:
            name, _ = _by_tokens("gated", tokens)
            self._launch(
                programs.weights(gate.format_name),
                name,
                (blocks(gate.rows, WARPS),),
                WARPS * WARP,
                *(gate.address, up.address, x, hidden, gate.rows, gate.columns, tokens),
            )
        else:
            g, u = self.linear(gate, x), self.linear(up, x)
            self._each(programs.VECTORS, "swiglu", hidden.size, g, u, hidden)
        return self.linear(down, hidden)

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
            WARP,
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
        tokens, used = chosen.experts.shape
        down, parts = layer.parts[-1], len(layer.parts)
        out = self.workspace.tensor(tokens, down.rows)
        with self.scope():
            hidden = self._expert_hidden(layer, x, chosen)
            self._launch(
                programs.weights(down.format_name),
                "expert_down",
                (blocks(down.rows, WARPS * 2), tokens),
                WARPS * WARP,
                *(layer.places, parts, chosen.experts, chosen.weights, used, hidden, out),
                *(down.rows, down.columns),
            )
        return out

    def _expert_hidden(
        self, layer: DeviceExperts, x: DeviceTensor, chosen: DeviceRouting
    ) -> DeviceTensor:
        """silu(gate x) ⊙ (up x) of every entry, [T · used, F]."""
        entries, used = chosen.experts.size, chosen.experts.shape[1]
        rows, parts, routed = layer.inner, len(layer.parts), chosen.experts
        gate, up = layer.parts[0], layer.parts[-2]
        hidden = self.workspace.tensor(entries, rows)
        if gate.format_name == up.format_name:
            grid = (blocks(rows, WARPS), entries)
            self._launch(
                programs.weights(gate.format_name),
                "expert_gated",
                grid,
                WARPS * WARP,
                *(layer.places, parts, routed, used, x, hidden, rows, gate.columns),
            )
            return hidden
        both = [self.workspace.tensor(entries, rows) for _ in range(2)]
        for part, out in enumerate(both):
            weight = layer.parts[part]
            self._launch(
                programs.weights(weight.format_name),
                "expert_multiply",
                (blocks(rows, WARPS * 2), entries),
                WARPS * WARP,
                *(layer.places, parts, part, routed, used, x, out, rows, weight.columns),
            )
        self._each(programs.VECTORS, "swiglu", hidden.size, *both, hidden)
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


def _by_tokens(kernel: str, tokens: int) -> tuple[str, int]:
    """The variant of `kernel` for up to as many tokens, and how many rows a warp takes in it."""
    if tokens > MOST_TOKENS:
        raise ValueError(f"{tokens} tokens, {MOST_TOKENS} at most")
    most = 1 if tokens == 1 else 4 if tokens <= 4 else 8
    return f"{kernel}_{most}", 1 if most == 8 else 2
