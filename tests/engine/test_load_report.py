"""A load that does not say what it loads, and how far it is, looks like one that hangs."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from stratadesk.engine import load_report
from stratadesk.engine.commands import EngineSettings, LoadModel
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.load_report import LoadClock, LoadReport
from stratadesk.engine.runtime import open_runtime
from stratadesk.kernels.host import warm_up
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


def test_the_time_of_kernels_is_no_time_of_loading() -> None:
    now = 100.0
    told: list[LoadProgress] = []
    clock = LoadClock(told.append, lambda: now)
    report = LoadReport(clock, "m")
    now += 1
    kernel = report.kernels(patient=False)
    for done in range(3):
        kernel(done, 2)
        now += 20
    report.step("Building the tokenizer")
    now += 2
    assert (clock.kernels_s, clock.load_s) == (40.0, 23.0)
    assert [progress.done for progress in told] == [0, 1, 2, 0]


def test_a_load_without_kernels_to_prepare_is_measured_whole() -> None:
    now = 100.0
    clock = LoadClock(lambda progress: None, lambda: now)
    now += 3
    assert (clock.kernels_s, clock.load_s) == (0.0, 3.0)


def test_a_model_that_waited_for_kernels_says_how_long_a_second_load_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings name this time as that of a reload: it read 42.6 s where one takes 0.2 s."""
    prepare, compiling_s = warm_up.warm_up, 0.5

    def slow(
        formats: set[str],
        kv_format: str,
        progress: Callable[[int, int], None],
        modules: Iterable[str] = (),
    ) -> None:
        progress(0, 1)
        time.sleep(compiling_s)
        prepare(formats, kv_format, progress, modules)

    monkeypatch.setattr(warm_up, "warm_up", slow)
    monkeypatch.setattr(load_report, "PATIENCE_S", -1.0)
    path = tmp_path / "small.gguf"
    tiny_model("qwen3moe").write(path)
    begun = time.monotonic()
    runtime = open_runtime(LoadModel(path, EngineSettings()), lambda progress: None)
    whole = time.monotonic() - begun
    runtime.close()
    told = runtime.describe()
    assert told.kernels_s >= compiling_s
    assert 0 < told.load_s <= whole - compiling_s
