"""Where Numba keeps compiled kernels. Imports no Numba: it reads its settings when imported."""

import atexit
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from stratadesk.kernels.host.numba_environment import LAYER_VARIABLE, check_environment

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
ROOM = 1 << 20
"""Bytes that a folder for kernels must have free."""


def configure(cache_dir: Path) -> bool:
    """Point Numba at a folder of `cache_dir` that belongs to these sources and versions.

    Numba notices a change of a kernel's own file but not of the functions that it calls, so the
    folder is named by a digest of all kernel sources. A folder that the user has chosen through
    NUMBA_CACHE_DIR is used instead of `cache_dir`. One that cannot be written is replaced by a
    temporary one, for this run alone: Numba by itself would write beside the sources. Returns
    whether kernels have been kept there.

    Raises `UsageError` for a variable of Numba's with a value that Numba cannot work with.
    """
    check_environment()
    base = Path(os.environ.get(CACHE_VARIABLE) or cache_dir / "kernels")
    digest = _digest()
    if base.name != digest:
        base /= digest
    if not can_write(base):
        base = _for_this_run(base)
    os.environ[CACHE_VARIABLE] = str(base)
    if not os.environ.get(LAYER_VARIABLE, "").strip():
        # Always there, and its threads sleep between kernels, where OpenMP's spin for a while.
        os.environ[LAYER_VARIABLE] = "workqueue"
    if "numba" in sys.modules:
        sys.modules["numba"].config.reload_config()
    return any(base.iterdir())


def can_write(folder: Path) -> bool:
    """Whether `folder`, which is made if it is not there, has room for some kernels."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(ROOM))
            probe.flush()
            return True
    except OSError:
        return False


def _for_this_run(unwritable: Path) -> Path:
    """Return a new folder that goes when the program ends.

    It has a name of its own, since compiled code is run as it is found: in a shared temporary
    folder a name known beforehand could be another user's.
    """
    folder = Path(tempfile.mkdtemp(prefix="stratadesk-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logging.getLogger(__name__).warning(
        "%s cannot be written: kernels are compiled into %s, for this run alone", unwritable, folder
    )
    return folder


def _digest() -> str:
    seen = hashlib.sha256()
    for name in ("numba", "llvmlite", "numpy"):
        seen.update(f"{name} {version(name)} ".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        seen.update(source.read_bytes())
    return f"host-{seen.hexdigest()[:16]}"
