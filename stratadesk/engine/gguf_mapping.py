"""Maps a file read-only into memory without reading it."""

import mmap
import os
import stat
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.gguf_cursor import quote
from stratadesk.errors import GgufError

NAME_A_FILE = "Name a .gguf file, or the folder that holds one model."
_WINDOWS_LIMIT = 248
"""Longer paths need the extended form where long paths are not switched on."""


class MappedFile:
    """A read-only mapping of one file; `label` is its quoted name for error sentences.

    Raises:
        GgufError: the file is missing, unreadable, empty or not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = quote(path.name)
        self.buffer = _map(path, self.label)
        self.data: NDArray[np.uint8] | None = np.frombuffer(self.buffer, np.uint8)

    def __len__(self) -> int:
        return len(self.buffer)

    def check_whole(self) -> None:
        """Raise GgufError when the file has been cut short: to read what is gone ends the process.

        Only mapped files that are cut in place are noticed; one that takes the name of another
        leaves the mapping as it is.
        """
        size = self.buffer.size()
        if size < len(self):
            raise GgufError(
                f"{self.label} was cut short while it was in use: it had {len(self):,} bytes and "
                f"has {size:,}.",
                "Put the whole file back, then load it again.",
            )

    def close(self) -> None:
        """Unmap the file, or leave that to the last view of its data."""
        self.data = None
        try:
            self.buffer.close()
        except BufferError:
            return


def _map(path: Path, label: str) -> mmap.mmap:
    try:
        status = os.stat(system_path(path))
        if not stat.S_ISREG(status.st_mode):
            raise GgufError(f"{label} is not a regular file.", NAME_A_FILE)
        if status.st_size == 0:
            raise GgufError(f"{label} is empty.", "Download it again.")
        with open(system_path(path), "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise GgufError(
            f"There is no file {quote(str(path), limit=1000)}.", "Check the path."
        ) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> GgufError:
    """Return the error for a file or folder that the system does not let us read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return GgufError(
        f"{quote(path.name)} cannot be read: {reason}.",
        "Check that it is there and that you may read it.",
    )


def system_path(path: Path) -> str:
    """Return `path` as the operating system takes it at any length."""
    return extended_path(os.path.abspath(path)) if os.name == "nt" else str(path)


def extended_path(path: str) -> str:
    r"""Return an absolute Windows path in a form without length limit, if it is a long one.

    >>> extended_path("C:\\short.gguf")
    'C:\\short.gguf'
    """
    if len(path) < _WINDOWS_LIMIT or path.startswith("\\\\?\\"):
        return path
    if PureWindowsPath(path).drive.startswith("\\\\"):
        return "\\\\?\\UNC\\" + path[2:]
    return "\\\\?\\" + path
