"""Where Numba keeps compiled kernels. Imports no Numba: it reads its settings when imported."""

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
LAYER_VARIABLE = "NUMBA_THREADING_LAYER"


def configure(cache_dir: Path) -> bool:
    """Point Numba at a folder of `cache_dir` that belongs to these sources and versions.

    Numba notices a change of a kernel's own file but not of the functions that it calls, so the
    folder is named by a digest of all kernel sources. A folder that the user has chosen through
    NUMBA_CACHE_DIR is used instead of `cache_dir`. Returns whether kernels have been kept there.
    """
    base = Path(os.environ.get(CACHE_VARIABLE) or cache_dir / "kernels")
    digest = _digest()
    if base.name != digest:
        base /= digest
    os.environ[CACHE_VARIABLE] = str(base)
    # Always there, and its threads sleep between kernels, where OpenMP's spin for a while.
    os.environ.setdefault(LAYER_VARIABLE, "workqueue")
    if "numba" in sys.modules:
        sys.modules["numba"].config.reload_config()
    return base.is_dir()


def _digest() -> str:
    seen = hashlib.sha256()
    for name in ("numba", "llvmlite", "numpy"):
        seen.update(f"{name} {version(name)} ".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        seen.update(source.read_bytes())
    return f"host-{seen.hexdigest()[:16]}"
