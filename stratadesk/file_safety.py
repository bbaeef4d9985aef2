"""Changing a small file so that neither a crash nor another window can lose what is in it."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from stratadesk.errors import StrataDeskError

POLL_S = 0.02
REPLACE_TRIES = 10


def replace_text(path: Path, text: str) -> None:
    """Put `text` in the place of the file at once: see `replacing`.

    Raises:
        StrataDeskError: the file cannot be written; the old one is untouched.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of the one at `path` when the `with` block ends well.

    Readers see the old or the new one, whole. A symbolic link stays one, a file keeps its
    permissions, a new one gets those that the system gives; nothing is left of a failure.

    Raises:
        StrataDeskError: the file cannot be written, or something else than a file stands there.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            raise StrataDeskError(f"{path} is no file.", "Name a file, or a place for a new one.")
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with ExitStack() as undo:
            undo.callback(_remove, name)
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, name)
            else:
                os.chmod(name, 0o666 & ~_umask())
            _replace(name, target)
            undo.pop_all()
        _sync_folder(target.parent)
    except OSError as error:
        raise StrataDeskError(
            f"{path} cannot be written: {error.strerror}.",
            "Make room there, or choose another place.",
        ) from None


def _umask() -> int:
    """The permissions that new files do not get; it can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)


def keep_aside(path: Path) -> Path:
    """Copy a file that is about to be replaced beside itself, under a free name; return that.

    Raises:
        StrataDeskError: it cannot be copied.
    """
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    try:
        shutil.copy2(path, aside)
    except OSError as error:
        raise StrataDeskError(
            f"{path} cannot be copied aside: {error.strerror}.", "Make room there, or move it away."
        ) from None
    return aside


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock of the file at `path`, which lies beside it and is made with its folder.

    The system lets go of it when a process ends, however it ends.

    Raises:
        StrataDeskError: another process has held it for `timeout_s` seconds, or it cannot be made.
    """
    place = path.with_name(f"{path.name}.lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StrataDeskError(
            f"{place} cannot be written: {error.strerror}.",
            "Give this user the right to write there, or set STRATADESK_HOME to another folder.",
        ) from None
    try:
        _wait_for_lock(handle, path, time.monotonic() + timeout_s)
        yield
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, path: Path, deadline: float) -> None:
    while not _try_lock(handle):
        if time.monotonic() >= deadline:
            raise StrataDeskError(
                f"{path} is being changed by another StrataDesk.", "Try again in a moment."
            )
        time.sleep(POLL_S)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _sync_folder(folder: Path) -> None:
        """Windows writes the folder's entry by itself."""

    def _replace(name: str, target: Path) -> None:
        """Replace, again and again while a reader holds the old file open."""
        for _ in range(REPLACE_TRIES):
            try:
                os.replace(name, target)
            except PermissionError:
                time.sleep(POLL_S)
            else:
                return
        os.replace(name, target)

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _sync_folder(folder: Path) -> None:
        """Make the folder's new entry survive a power cut."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _replace(name: str, target: Path) -> None:
        os.replace(name, target)
