"""Where a command may write its arrays: never over a model, or over anything else but arrays."""

import os
import struct
import zipfile
from pathlib import Path

from stratadesk.errors import UsageError

OTHER_PLACE = "Choose another -o."
_NO_ARRAYS = (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, struct.error)


def check_place(out: Path) -> None:
    """Check that an .npz file can be put at `out`, before the work of making one begins.

    Raises:
        UsageError: there is no such folder, it may not be written to, or something stands there
            that is neither empty nor an .npz file, such as a model, a folder or a device.
        FileNotFoundError: the working directory does not exist any more.
    """
    folder = out.absolute().parent
    try:
        _check(out, folder)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.", OTHER_PLACE) from None


def _check(out: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"The folder {folder} does not exist.", "Create it, or choose another -o.")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is no file.", OTHER_PLACE)
    if out.exists() and not _holds_arrays(out):
        raise UsageError(f"{out} exists and is no .npz file, so it is not replaced.", OTHER_PLACE)
    # The file itself is replaced, where a link leads to, so only its folder is written to.
    written = Path(os.path.realpath(out)).parent
    if not os.access(written, os.W_OK | os.X_OK):
        raise UsageError(f"No file can be made in {written}.", OTHER_PLACE)


def _holds_arrays(file: Path) -> bool:
    """Whether a file is empty, or a ZIP archive of arrays alone; PyTorch's are of other things."""
    if not file.stat().st_size:
        return True
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except _NO_ARRAYS:
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)
