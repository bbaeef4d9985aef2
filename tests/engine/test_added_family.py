"""Guards against a new family that needs edits outside its own module and its registration.

A toy family stands here as one would in `architectures/`: qwen3moe under another name, whose
norms have other names. Everything else of the program must take it from its name alone, and
compute what qwen3moe does with the same weights.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from stratadesk.cli import main
from stratadesk.engine import architectures
from stratadesk.engine.architectures.attention import Attention
from stratadesk.engine.architectures.base import Layer
from stratadesk.engine.architectures.feed_forward import MixtureOfExperts
from stratadesk.engine.architectures.residual import ResidualModel
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from tests.engine.fuzzing import use_everything
from tests.gguf_builder import string
from tests.tiny_models import FAMILIES, tiny_model

NAME = "toy-moe"
RENAMED = {"attn_norm": "input_norm", "ffn_norm": "middle_norm"}


class ToyMoe(ResidualModel):
    """x += attention(rms(x; input_norm)); x += moe(rms(x; middle_norm))."""

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        prefix, width = f"blk.{index}.", self.width
        return Layer(
            table.vector(f"{prefix}input_norm.weight", width),
            Attention(header, table, prefix, width, self.head_size, self.eps),
            table.vector(f"{prefix}middle_norm.weight", width),
            MixtureOfExperts(header, table, prefix, width),
        )


MODEL = ToyMoe


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what a line in `SUPPORTED` and a file beside the other families do."""
    module = f"{architectures.__name__}.{NAME.replace('-', '_')}"
    monkeypatch.setitem(sys.modules, module, sys.modules[__name__])
    monkeypatch.setattr(architectures, "SUPPORTED", (*architectures.SUPPORTED, NAME))


def model_files(folder: Path) -> tuple[Path, Path]:
    """A tiny qwen3moe, and the toy with the same weights."""
    model = tiny_model("qwen3moe")
    known = model.write(folder / "known.gguf")
    model.entries = [
        (str(key).replace("qwen3moe.", f"{NAME}."), value) for key, value in model.entries
    ]
    model.entries[0] = ("general.architecture", string(NAME))
    for tensor in model.tensors:
        block, _, part = tensor.name.removesuffix(".weight").rpartition(".")
        tensor.name = tensor.name.replace(f"{block}.{part}.", f"{block}.{RENAMED.get(part, part)}.")
    return known, model.write(folder / "toy.gguf")


def test_an_unregistered_family_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, toy = model_files(tmp_path)
    assert main(["run", "-m", str(toy), "-p", "x"]) != 0
    assert f"{NAME!r} is not supported" in capsys.readouterr().err


@pytest.mark.usefixtures("registered")
def test_a_registered_family_is_inspected_planned_and_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, toy = model_files(tmp_path)
    assert main(["inspect", str(toy), "--json"]) == 0
    inspected = json.loads(capsys.readouterr().out)
    assert (inspected["architecture"], inspected["supported"]) == (NAME, True)
    plans, logits = [], []
    for path in (known, toy):
        plan = ["plan", "-m", str(path), "--vram-mib", "4096", "--ram-gib", "4", "--json"]
        assert main(plan) == 0
        plans.append(json.loads(capsys.readouterr().out))
        out = tmp_path / f"{path.stem}.npz"
        assert main(["logits", "-m", str(path), "--tokens", "5 6 7 8 9", "-o", str(out)]) == 0
        logits.append(np.load(out)["logits"])
        capsys.readouterr()
    assert f"{NAME} is not computed on a" in plans[1].pop("device_cuda")["why_not"]
    plans[0].pop("device_cuda")
    assert plans[1].pop("architecture", NAME) == NAME
    plans[0].pop("architecture", None)
    assert plans[0] == plans[1]
    assert logits[0].shape == (5, 260)
    assert np.array_equal(*logits)


@pytest.mark.usefixtures("registered")
def test_a_registered_family_gets_a_tiny_model_of_its_own(tmp_path: Path) -> None:
    use_everything(tiny_model(NAME, FAMILIES["qwen3moe"]).write(tmp_path / "toy.gguf"))
