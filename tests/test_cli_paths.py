"""Guards against files in places nobody was told of."""

from dataclasses import astuple
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.paths import folders


def test_one_variable_moves_every_folder(tmp_path: Path) -> None:
    moved = folders({"STRATADESK_HOME": str(tmp_path / "elsewhere")})
    assert all(path.parent == tmp_path / "elsewhere" for path in astuple(moved))
    assert len(set(astuple(moved))) == len(astuple(moved))
    assert not (tmp_path / "elsewhere").exists()


def test_a_relative_home_does_not_move_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders({"STRATADESK_HOME": "here"}).data == tmp_path / "here" / "data"


def test_a_home_of_a_user_that_is_not_known_is_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = folders({"STRATADESK_HOME": "~no-such-user"})
    assert moved.data == tmp_path / "~no-such-user" / "data"


def test_without_it_the_platform_decides() -> None:
    here = folders({})
    assert all("stratadesk" in path.parts for path in astuple(here))
    assert here.log_file.parent == here.log


def test_paths_prints_all_folders(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paths"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(rows) == ["config", "data", "state", "cache", "log"]
    assert rows["cache"] == str(own_home / "cache")
