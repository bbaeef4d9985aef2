"""Guards against a file that is lost, half written, or replaced by mistake."""

import os
import sys
from pathlib import Path

import pytest

from stratadesk.errors import StrataDeskError
from stratadesk.file_safety import replacing


def write_half(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise RuntimeError("half way")


def test_a_file_is_whole_or_as_before_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"):
        write_half(path)
    assert path.read_bytes() == b"old"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="permissions, links and FIFOs of POSIX")
def test_permissions_and_links_are_kept_and_new_files_get_the_usual_ones(tmp_path: Path) -> None:
    target, link, fresh = tmp_path / "target", tmp_path / "link", tmp_path / "fresh"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    mask = os.umask(0o022)
    try:
        for path in (link, fresh):
            with replacing(path) as file:
                file.write(b"new")
    finally:
        os.umask(mask)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert (target.stat().st_mode & 0o777, fresh.stat().st_mode & 0o777) == (0o640, 0o644)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no FIFOs on Windows")
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        with pytest.raises(StrataDeskError, match="is no file"), replacing(path):
            pass
    assert fifo.is_fifo()
