"""Guards against compiled kernels beside the sources, and against minutes of silence in a pipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratadesk.cli import views
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.views import COMPILING, CompileNotice
from stratadesk.engine.backends import open_backend
from stratadesk.engine.commands import Device
from stratadesk.engine.events import LoadProgress
from stratadesk.errors import UsageError
from stratadesk.kernels.host import compile_cache
from stratadesk.kernels.host.numba_environment import check_environment, check_threads

CONFIGURE = """
import os, sys, pathlib
from stratadesk.kernels.host import compile_cache
kept = compile_cache.configure(pathlib.Path(sys.argv[1]))
print(kept, os.environ["NUMBA_CACHE_DIR"])
"""


def configured(folder: Path) -> tuple[str, Path]:
    """Whether kernels were kept in `folder`, and where a fresh interpreter would put them."""
    environment = {name: value for name, value in os.environ.items() if "NUMBA" not in name}
    command = [sys.executable, "-c", CONFIGURE, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    kept, _, place = done.stdout.strip().partition(" ")
    return kept, Path(place)


def test_a_folder_that_cannot_be_written_is_replaced_for_one_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept, place = configured(tmp_path / "file" / "cache")
    assert kept == "False"
    assert tmp_path not in place.parents
    assert Path(compile_cache.__file__).parent not in place.parents
    assert not place.exists()


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    kept, place = configured(tmp_path)
    assert (kept, place.parent) == ("False", tmp_path / "kernels")
    (place / "kernel.nbi").touch()
    assert configured(tmp_path) == ("True", place)


def test_kernels_that_cannot_be_kept_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    warn_of_unkept_kernels()
    assert capsys.readouterr().err == ""
    (tmp_path / "file").touch()
    monkeypatch.setenv("STRATADESK_HOME", str(tmp_path / "file"))
    warn_of_unkept_kernels()
    assert "compiled kernels are not kept. Set STRATADESK_HOME" in capsys.readouterr().err


def test_a_folder_of_numbas_variable_that_cannot_be_written_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    warn_of_unkept_kernels()
    assert capsys.readouterr().err == ""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    warn_of_unkept_kernels()
    err = capsys.readouterr().err
    assert f"NUMBA_CACHE_DIR={tmp_path / 'file'} cannot be written" in err
    assert "Set NUMBA_CACHE_DIR to a folder that can." in err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("NUMBA_NUM_THREADS", "abc", "abc is not a number of threads from 1 to 4096."),
        ("NUMBA_NUM_THREADS", "0", "0 is not a number of threads"),
        ("NUMBA_NUM_THREADS", "-3", "-3 is not a number of threads"),
        ("NUMBA_NUM_THREADS", "9" * 5000, "is not a number of threads"),
        ("NUMBA_THREADING_LAYER", "zzz", "zzz is not one of workqueue, omp, tbb, "),
        ("NUMBA_THREADING_LAYER", "\x1b[1m", "\\x1b[1m is not one of"),
        ("NUMBA_DISABLE_JIT", "1", "1 is not 0: kernels must be compiled."),
        ("NUMBA_CPU_FEATURES", "+avx,zzz", "+avx,zzz is not a list like"),
    ],
)
def test_a_variable_that_numba_cannot_work_with_is_told_by_name_and_value(
    variable: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as caught:
        open_backend(Device.HOST, tmp_path)
    assert caught.value.sentence.startswith(f"{variable}=")
    assert said in caught.value.sentence
    assert variable in caught.value.remedy
    assert len(str(caught.value)) < 250


def test_what_numba_can_work_with_is_not_refused() -> None:
    check_environment({"NUMBA_NUM_THREADS": " 2 ", "NUMBA_THREADING_LAYER": "omp"})
    check_environment({"NUMBA_CPU_FEATURES": "+avx2, -avx512f", "NUMBA_DISABLE_JIT": "0"})
    check_environment({"NUMBA_NUM_THREADS": "", "NUMBA_THREADING_LAYER": " "})


def test_an_empty_layer_is_none_chosen(tmp_path: Path) -> None:
    code = CONFIGURE.replace("NUMBA_CACHE_DIR", "NUMBA_THREADING_LAYER")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_THREADING_LAYER": ""}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["False", "workqueue"]


def test_a_layer_for_threads_that_is_not_installed_is_told_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def launch() -> None:
        raise ValueError("No threading layer could be loaded.\nHINT: Intel TBB is required")

    monkeypatch.setattr("numba.get_num_threads", launch)
    monkeypatch.setenv("NUMBA_THREADING_LAYER", "tbb")
    with pytest.raises(UsageError, match="NUMBA_THREADING_LAYER=tbb") as caught:
        check_threads()
    assert "could be loaded. Change it" in str(caught.value)


def preparing(done: int) -> LoadProgress:
    return LoadProgress("Preparing kernels", done, 12, "kernels")


def test_compiling_is_told_once_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    notice = CompileNotice()
    for done in range(13):
        notice.show(preparing(done))
    assert capsys.readouterr() == ("", f"{COMPILING}\n")


def test_reading_kept_kernels_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 10.0
    monkeypatch.setattr(views.time, "monotonic", lambda: now)
    notice = CompileNotice()
    for done in (3, 4, 12):
        notice.show(preparing(done))
    assert capsys.readouterr().err == ""
    notice.show(preparing(5))
    now = 13.0
    notice.show(preparing(6))
    assert capsys.readouterr().err == f"{COMPILING}\n"


def test_a_terminal_has_its_progress_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    CompileNotice().show(preparing(0))
    assert capsys.readouterr().err == ""
