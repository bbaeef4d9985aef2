"""Guards against a plan that is silent about what a model does not have, or keeps and never reads.

No experts, no head of its own, windows that see less than the cache holds: each is said in words.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.loading import load_model
from stratadesk.engine.vram.mixer_shapes import AttentionShape
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.shape_reader import read_shape
from stratadesk.errors import UsageError
from tests.gguf_builder import GgufBuilder
from tests.tiny_models import FAMILIES, tiny_model

CARD = ("--vram-mib", "3072", "--ram-gib", "8")


def untied(folder: Path, name: str) -> Path:
    return tiny_model(name).write(folder / "tiny.gguf")


def tied(folder: Path, name: str) -> Path:
    model: GgufBuilder = tiny_model(name)
    model.tensors = [tensor for tensor in model.tensors if tensor.name != "output.weight"]
    return model.write(folder / "tied.gguf")


def words(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The lines of the plan by what they begin with, blanks made single."""
    assert main(["plan", "-m", str(path), *CARD]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    starts = ("expert slots", "output head", "KV cache", "The alias")
    return {start: line for start in starts for line in lines if line.startswith(start)}


def test_a_dense_model_is_said_to_have_no_experts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words(untied(tmp_path, "qwen3"), capsys)
    slots = "expert slots 0.0 none: the model has no experts, so there are no rows to lend"
    assert found["expert slots"] == slots
    assert "is the embedding" not in found["output head"]
    assert "is the embedding" not in found["The alias"]


def test_a_dense_tied_model_has_nothing_to_lend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tied(tmp_path, "qwen3")
    found = words(path, capsys)
    assert "the model has no experts" in found["expert slots"]
    assert found["output head"].endswith(
        "is the embedding, counted with the dense weights and never lent"
    )
    assert found["The alias"].startswith("The alias is not available: the output head is the")
    assert main(["plan", "-m", str(path), *CARD, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["rows"], plan["slots_total"], plan["slots_per_layer"]) == (0, 0, [])
    assert plan["layouts"][Layout.ALIAS]["max_chunk"] == 0
    assert all(request["head"] == "in" for request in plan["requests"])


def test_a_tied_model_with_experts_lends_these_and_never_the_head(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words(tied(tmp_path, "qwen3moe"), capsys)
    assert "8 of 8 experts (100%), 4 a layer" in found["expert slots"]
    assert "never lent" in found["output head"]


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_tied_head_computes_from_the_embedding_and_refuses_the_alias(
    name: str, tmp_path: Path
) -> None:
    settings = EngineSettings(max_context=16)
    model = load_model(tied(tmp_path, name), settings, lambda progress: None)
    assert model.memory.plan.geometry.head.size == 0
    assert model.forward(model.new_state(), [5, 6, 7], logits="all").std() > 0.01
    with pytest.raises(UsageError, match="it is the embedding and is never lent"):
        model.set_alias(HeadAlias.ON)
    model.close()


def test_a_plan_that_asks_for_a_tied_heads_bytes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tied(tmp_path, "qwen3")
    assert main(["plan", "-m", str(path), *CARD, "--prefill-head-alias", "on"]) == 2
    assert "it is the embedding and is never lent" in capsys.readouterr().err


def test_windows_are_said_to_see_less_than_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words(untied(tmp_path, "gpt-oss"), capsys)
    kept = "64 tokens, f16; 1 of 2 layers see only the last 2, all is kept"
    assert found["KV cache"].endswith(kept)
    assert words(untied(tmp_path, "qwen3moe"), capsys)["KV cache"].endswith("64 tokens, f16")


def test_windows_are_read_by_layer_and_cost_what_they_see(tmp_path: Path) -> None:
    with GgufFile.open(untied(tmp_path, "gpt-oss")) as gguf:
        shape = read_shape(gguf)
    assert shape.windows(False) == (2,)
    first, last = (layer.mixer for layer in shape.layers)
    assert isinstance(first, AttentionShape)
    assert first == replace(last, window=2)
    assert first.flops(1.0) == last.flops(1.0)
    assert first.flops(40.0) == last.flops(2.0) < last.flops(40.0)
    assert shape.layers[0].kv_bytes(64, "f16") == shape.layers[1].kv_bytes(64, "f16")
