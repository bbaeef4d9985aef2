"""A load that does not say what it loads, and how far it is, looks like one that hangs."""

from pathlib import Path

import pytest

from stratadesk.engine.commands import EngineSettings, LoadModel
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.runtime import open_runtime
from tests.engine.harness import MODEL, empty_desk
from tests.tiny_models import tiny_model


@pytest.fixture
def told(tmp_path: Path) -> list[LoadProgress]:
    """What is told while a small model loads."""
    told: list[LoadProgress] = []
    path = tmp_path / "small.gguf"
    tiny_model("qwen3moe").write(path)
    open_runtime(LoadModel(path, EngineSettings()), told.append).close()
    return told


def test_each_stage_names_the_model_and_its_size(told: list[LoadProgress], tmp_path: Path) -> None:
    assert len({progress.name for progress in told}) == 1
    assert {p.file_bytes for p in told} == {(tmp_path / "small.gguf").stat().st_size}
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages == [
        "Planning the memory",
        "Preparing kernels",
        "Copying dense weights",
        "Building the tokenizer",
    ]


def test_every_byte_that_is_copied_is_counted(told: list[LoadProgress], tmp_path: Path) -> None:
    copied = [progress for progress in told if progress.stage == "Copying dense weights"]
    assert len(copied) > 10
    assert [p.done for p in copied] == sorted({p.done for p in copied})
    (total,) = {p.total for p in copied}
    with GgufFile.open(tmp_path / "small.gguf") as gguf:
        stay = ("_exps.weight", "token_embd.weight")
        sizes = [info.n_bytes for name, info in gguf.tensors.items() if not name.endswith(stay)]
    assert copied[-1].done == sum(sizes)
    assert copied[-1].done <= total


def test_the_file_is_named_before_it_is_open() -> None:
    with empty_desk() as d:
        d.while_loading = lambda progress: None
        first = d.load()
        assert next(e.name for e in first if isinstance(e, LoadProgress)) == MODEL.name
