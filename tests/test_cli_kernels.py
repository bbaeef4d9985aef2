"""Guards against compiled kernels beside the sources, and against minutes of silence in a pipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratadesk.cli import views
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.views import COMPILING, CompileNotice
from stratadesk.engine.events import LoadProgress
from stratadesk.kernels.host import compile_cache

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
