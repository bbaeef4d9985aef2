"""Guards against experts and layers that are not llama.cpp's although the logits come close."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.logits import compute_logits
from stratadesk.engine.model import LoadedModel
from tests.goldens import PROMPTS, Golden, tolerances
from tests.test_golden_logits import golden_models, load

CLEAR_MARGIN = 1e-5
"""Below this lead an expert's choice may fall either way in float32."""

Ints = npt.NDArray[np.int32]


@pytest.fixture(params=golden_models(), ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    found: Golden = request.param
    return found


def record_experts(model: LoadedModel, kept: list[Ints]) -> None:
    ops: Any = model._ops
    route = ops.route

    def recording(*arguments: Any) -> Any:
        chosen = route(*arguments)
        kept.append(chosen.experts.copy())
        return chosen

    ops.route = recording


def record_inputs(model: LoadedModel, kept: list[npt.NDArray[np.float32]]) -> None:
    family: Any = model._family
    advance = family.advance

    def recording(ops: Any, x: Any, *others: Any) -> None:
        kept.append(x.copy())
        advance(ops, x, *others)

    family.advance = recording


def differing(found: Sequence[Ints], golden: Golden, prompt: int) -> list[tuple[int, int]]:
    """Layers and tokens whose experts differ as sets although their margin is clear."""
    wanted = golden.result(prompt, "exact_experts")
    margins = golden.result(prompt, "exact_router_margin")
    routed = [layer for layer in range(len(wanted)) if (wanted[layer] >= 0).all()]
    assert len(routed) == len(found) > 0
    return [
        (layer, t)
        for layer, experts in zip(routed, found, strict=True)
        for t in range(len(experts))
        if margins[layer, t] > CLEAR_MARGIN and set(experts[t]) != set(wanted[layer, t])
    ]


def test_experts_are_those_of_llama_cpp(golden: Golden) -> None:
    if "p0_exact_experts" not in golden.results.files:
        pytest.skip("a dense model")
    model = load(golden.path)
    for prompt in PROMPTS:
        tokens, found = golden.tokens(prompt), list[Ints]()
        record_experts(model, found)
        compute_logits(model, tokens, len(tokens))
        assert differing(found, golden, prompt) == []
        del model._ops.route
    model.close()


def test_layers_get_the_residual_stream_of_llama_cpp(golden: Golden) -> None:
    if "p0_exact_layer_inputs" not in golden.results.files:
        pytest.skip("llama.cpp's graph does not let it be read")
    model = load(golden.path)
    if not hasattr(model._family, "advance"):
        pytest.skip("the residual stream of this family is not one tensor")
    found: list[npt.NDArray[np.float32]] = []
    record_inputs(model, found)
    tokens = golden.tokens(0)
    compute_logits(model, tokens, len(tokens))
    wanted = golden.result(0, "exact_layer_inputs")
    stored = golden.result(0, "exact_positions")
    allowed = tolerances(golden.folder)["f32"]
    for layer, x in enumerate(found):
        assert np.abs(x[stored] - wanted[layer]).max() <= allowed * wanted[layer].std()
    assert len(found) == len(wanted)
    model.close()


def test_most_families_are_looked_into(golden_dir: Path) -> None:
    seen = {one.name for one in golden_models() if "p0_exact_experts" in one.results.files}
    assert {name.split("-")[0] for name in seen} >= {"qwen35moe", "olmoe", "glm4moe", "gptoss"}
