"""The guide: a small model that comes with the program and answers questions about it."""

import os
from collections.abc import Mapping
from pathlib import Path

from stratadesk.errors import GgufError, ModelError

GUIDE = "guide"
"""The name that stands for it after `-m` and in lists."""

BUNDLED = "bundled"
"""The name of the place where it is found."""

VARIABLE = "STRATADESK_GUIDE"

REMEDY = "Install StrataDesk again, or choose another model with -m."


def guide_path(env: Mapping[str, str] | None = None) -> Path | None:
    """Return the guide's file, None where there is none.

    STRATADESK_GUIDE names another one, which need not exist; empty, it stands for no guide.
    Otherwise the file lies in an installed package, or in the `assets` of a source checkout.
    """
    named = (os.environ if env is None else env).get(VARIABLE)
    if named is not None:
        return Path(os.path.expanduser(named.strip())) if named.strip() else None
    return next((place for place in _places() if place.is_file()), None)


def sound_guide(env: Mapping[str, str] | None = None) -> Path | None:
    """Return the guide's file after a look at its header, None where there shall be no guide.

    A file that STRATADESK_GUIDE names is a model like any other: it is not looked at.

    Raises:
        GgufError: the file that comes with the program is missing or damaged.
    """
    path = guide_path(env)
    if (os.environ if env is None else env).get(VARIABLE) is not None:
        return path
    if path is None:
        raise GgufError(f"This installation lacks the guide: there is no {_places()[0]}.", REMEDY)
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.inspection import check_supported

    try:
        with GgufFile.open(path) as gguf:
            check_supported(gguf)
    except ModelError as error:
        raise damaged(error) from None
    return path


def comes_along(path: Path) -> bool:
    """Whether `path` is the guide that comes with the program."""
    return VARIABLE not in os.environ and is_guide(path)


def damaged(error: ModelError) -> GgufError:
    """Return what to tell when opening the guide that comes with the program fails."""
    return GgufError(f"The guide of this installation is damaged: {error.sentence}", REMEDY)


def is_guide(path: Path | str) -> bool:
    """Whether the model at `path` is the guide."""
    return Path(path) == guide_path()


def _places() -> tuple[Path, Path]:
    package = Path(__file__).resolve().parents[1]
    inside, beside = (folder / "assets" / "guide.gguf" for folder in (package, package.parent))
    return inside, beside
