"""Lists the files below a folder, through links but never in circles."""

import os
from collections.abc import Iterator
from pathlib import Path

from stratadesk.engine.gguf_mapping import system_path
from stratadesk.models.found import SkippedFile

MAX_DEPTH = 8
MAX_FOLDERS = 20_000


class Walk:
    """One search below `root`; `skipped` holds the folders that could not be searched."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: set[tuple[int, int]] = set()
        self.skipped: list[SkippedFile] = []

    def files(self) -> Iterator[Path]:
        """Yield all files, sorted within each folder; hidden folders are left out."""
        pending = [(self._root, 0)]
        while pending:
            folder, depth = pending.pop()
            if not self._enter(folder, depth):
                continue
            folders, files = self._list(folder)
            pending += [(child, depth + 1) for child in reversed(folders)]
            yield from files

    def _enter(self, folder: Path, depth: int) -> bool:
        try:
            status = os.stat(system_path(folder))
        except OSError as error:
            self._skip(folder, f"cannot be read: {error.strerror}")
            return False
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            return False
        if depth > MAX_DEPTH or len(self._seen) >= MAX_FOLDERS:
            self._skip(folder, "not searched: too deep, or too many folders before it")
            return False
        self._seen.add(identity)
        return True

    def _list(self, folder: Path) -> tuple[list[Path], list[Path]]:
        folders, files = [], []
        try:
            with os.scandir(system_path(folder)) as entries:
                for entry in entries:
                    if not entry.is_dir():
                        files.append(folder / entry.name)
                    elif not entry.name.startswith("."):
                        folders.append(folder / entry.name)
        except OSError as error:
            self._skip(folder, f"cannot be read: {error.strerror}")
        return sorted(folders), sorted(files)

    def _skip(self, folder: Path, reason: str) -> None:
        self.skipped.append(SkippedFile(folder, reason))
