"""The guide: a small model that comes with the program and answers questions about it."""

import os
from collections.abc import Mapping
from pathlib import Path

GUIDE = "guide"
"""The name that stands for it after `-m` and in lists."""

BUNDLED = "bundled"
"""The name of the place where it is found."""

VARIABLE = "STRATADESK_GUIDE"


def guide_path(env: Mapping[str, str] | None = None) -> Path | None:
    """Return the guide's file, None where there is none.

    STRATADESK_GUIDE names another one, which need not exist; empty, it stands for no guide.
    Otherwise the file lies in an installed package, or in the `assets` of a source checkout.
    """
    named = (os.environ if env is None else env).get(VARIABLE)
    if named is not None:
        return Path(os.path.expanduser(named.strip())) if named.strip() else None
    package = Path(__file__).resolve().parents[1]
    places = (folder / "assets" / "guide.gguf" for folder in (package, package.parent))
    return next((place for place in places if place.is_file()), None)


def is_guide(path: Path | str) -> bool:
    """Whether the model at `path` is the guide."""
    return Path(path) == guide_path()
