"""Guards against a plan that lends fewer bytes than a prompt then needs, or many more.

The workspace of the host engine counts the most bytes that were in use at once; the plan's rule
must be no less, and at most a tenth more.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from stratadesk.engine.architectures import SUPPORTED
from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.tensor_formats import HOST_FORMATS
from stratadesk.engine.vram.buffers import HOST_RULE, PromptBuffers
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.shape import FeedForwardShape, LayerShape, ModelShape
from stratadesk.kernels.host.workspace import StackWorkspace
from stratadesk.units import MIB
from tests.goldens import names_with
from tests.vram.host_bench import (
    DELTA_NET,
    DENSE,
    EXPERTS,
    TINY,
    random_ids,
)

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = (DELTA_NET, EXPERTS, DENSE, TINY)
CHUNKS = (64, 128, 192, 512)
ODD = 37
"""Tokens of a last chunk that fill no line of the cache."""
MOST = 1.1


def load(path: Path, chunk: int) -> LoadedModel:
    plan = PlanSettings(
        reserve=0,
        alias=HeadAlias.OFF,
        prefill_layout=Layout.FIXED,
        short_read=0,
        block_bytes=4_096,
    )
    settings = EngineSettings(
        max_context=512,
        chunk=chunk,
        plan=plan,
        machine=MachineFacts(card=32 * MIB, desktop=0, context=0),
        poison=True,
    )
    return load_model(path, settings, lambda _: None)


def peak_of(model: LoadedModel, tokens: int) -> int:
    """Bytes that the workspace of a prompt's chunk of `tokens` had in use at most."""
    choice = model.begin_request(tokens)
    assert choice.layout is Layout.FIXED
    workspace = model._ops.workspace
    assert isinstance(workspace, StackWorkspace)
    model.forward(model.new_state(), random_ids(tokens, tokens), logits="none")
    model.recover()
    return workspace.peak


class LeftOut:
    """Half a layer that computes nothing and takes no memory."""

    n_bytes = 0

    def __call__(self, ops: Any, h: Any, *_: Any) -> Any:
        return h

    def new_state(self, *_: Any) -> "LeftOut":
        return self

    def commit(self) -> None:
        """Keep nothing."""


def only(layer: Any, half: str) -> Any:
    other = "feed_forward" if half == "mixer" else "mixer"
    return replace(layer, **{other: LeftOut()})


def shape_of(shape: ModelShape, layer: LayerShape, half: str) -> ModelShape:
    """A model of half a layer."""
    if half == "mixer":
        return replace(shape, layers=(replace(layer, feed_forward=FeedForwardShape()),))
    return replace(shape, layers=(replace(layer, mixer=None),))


def check_rule(name: str, peak: int, planned: int) -> None:
    print(f"{name}: {peak:,} bytes in use, {planned:,} planned, {planned / peak:.3f} times")
    assert peak <= planned <= MOST * peak


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", MODELS)
def test_the_plan_lends_a_prompt_what_it_needs(name: str, chunk: int, data_dir: Path) -> None:
    model = load(data_dir / "models" / f"{name}.gguf", chunk)
    buffers = PromptBuffers(model.memory.plan.shape, HOST_RULE)
    choice = model.begin_request(chunk)
    model.recover()
    assert choice.buffer_bytes == aligned(buffers(chunk))
    check_rule(f"{name}, chunk {chunk}", peak_of(model, chunk), buffers.activations(chunk))
    check_rule(f"{name}, {ODD} tokens", peak_of(model, ODD), buffers.activations(ODD))
    model.close()


@pytest.mark.parametrize("half", ["mixer", "feed_forward"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_half_layer_keeps_to_the_rule(name: str, half: str, data_dir: Path) -> None:
    """Whichever is the fullest in a model of other sizes, the rule counts it right."""
    model = load(data_dir / "models" / f"{name}.gguf", 64)
    shape, family = model.memory.plan.shape, cast(Any, model._family)
    layers = family.layers
    kinds = {getattr(kind, half): (kind, i) for i, kind in enumerate(shape.layers)}
    for kind, number in kinds.values():
        family.layers = (only(layers[number], half),)
        planned = PromptBuffers(shape_of(shape, kind, half), HOST_RULE)
        for tokens in (64, ODD):
            what = f"{name}, {half} of layer {number}, {tokens} tokens"
            check_rule(what, peak_of(model, tokens), planned.activations(tokens))
    model.close()


@pytest.mark.parametrize("name", MODELS)
def test_the_decode_scratch_holds_a_window_and_the_logits_of_a_step(
    name: str, data_dir: Path
) -> None:
    model = load(data_dir / "models" / f"{name}.gguf", 64)
    window, scratch = HOST_RULE.decode_window, model._scratch
    buffers = PromptBuffers(model.memory.plan.shape, HOST_RULE)
    logits_bytes = 4 * model.vocab_size
    model.begin_request(0)
    model.forward(model.new_state(), random_ids(1, 3 * window), logits="last")
    model.end_request()
    check_rule(f"{name}, window", scratch.peak, buffers.activations(window))
    assert model.memory.scratch.size == aligned(buffers.activations(window) + logits_bytes)
    model.close()


def test_every_golden_model_keeps_to_the_rule(golden_dir: Path) -> None:
    names = names_with(golden_dir, set(SUPPORTED), set(HOST_FORMATS))
    for name in names:
        model = load(golden_dir / "models" / f"{name}.gguf", 64)
        planned = PromptBuffers(model.memory.plan.shape, HOST_RULE).activations(64)
        check_rule(name, peak_of(model, 64), planned)
        model.close()
    assert len(names) >= 17


def test_a_workspace_that_is_too_small_is_an_error_and_not_a_heap_allocation(
    data_dir: Path,
) -> None:
    model = load(data_dir / "models" / f"{MODELS[0]}.gguf", 64)
    model.begin_request(65)
    with pytest.raises(RuntimeError, match="cannot hold"):
        model._pass(model.new_state(), random_ids(2, 65), slice(0, 0))
    model.recover()
    model.close()
