"""What `-m` may be: a file, a folder, "guide", or the name of a model found on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.errors import GgufError, UsageError

if TYPE_CHECKING:
    from stratadesk.models import Discovery, FoundModel

ADDRESSES = ("https:", "http:", "hf.co/", "huggingface.co/", "hf:", "ollama.com/")
LISTS = "stratadesk models lists what was found."


def model_path(written: str, folders: Sequence[str] | None = None) -> Path:
    """Return where the model is that was named by path, file name or name.

    What exists under this path is taken as it is, and "guide" is the bundled one. Otherwise the
    stores are searched, `folders` (by default those of the settings) among them.

    Raises:
        UsageError: nothing is named, or several models have the name.
        GgufError: there is neither such a file nor a model of this name, or the guide that comes
            with the program is missing or damaged.
    """
    if not written.strip():
        raise UsageError(
            "No model is named: the text in its place is empty.",
            "Give a GGUF file, its folder, or a name that stratadesk models lists.",
        )
    # Not `Path.expanduser`, which raises for a user that is not known.
    path = Path(os.path.expanduser(written))
    if _exists(path):
        return path
    from stratadesk.models import find_models
    from stratadesk.models.guide import GUIDE, VARIABLE, sound_guide
    from stratadesk.models.naming import named

    guide = sound_guide() if written == GUIDE else None
    if guide is not None:
        return guide
    found = find_models(folders=_kept_folders() if folders is None else folders)
    fitting = named(found.models, written)
    if len(fitting) > 1:
        raise _ambiguous(written, fitting)
    if not fitting and written == GUIDE:
        raise GgufError(f"There is no guide: {VARIABLE} is empty.", "Unset it, or name a model.")
    if not fitting:
        raise _unknown(written, path, found)
    return fitting[0].path


def _exists(path: Path) -> bool:
    from stratadesk.engine.gguf_mapping import system_path

    try:
        return os.path.lexists(system_path(path))
    except ValueError:
        return False


def _kept_folders() -> tuple[str, ...]:
    from stratadesk.settings_order import decide

    return decide({}).models.folders


def _ambiguous(written: str, fitting: Sequence["FoundModel"]) -> UsageError:
    names = [model.name for model in fitting]
    if len(set(names)) < len(names):
        names = [str(model.path) for model in fitting]
    return UsageError(
        f"{_quoted(written)} is the name of {len(names)} models or begins theirs: "
        f"{_listed(names)}.",
        "Write more of the name, or the path that stratadesk models shows.",
    )


def _unknown(written: str, path: Path, found: "Discovery") -> GgufError:
    from stratadesk.models.naming import nearest

    if written.casefold().startswith(ADDRESSES):
        # Under such a name Ollama keeps what it has fetched, so it may well have been found.
        return GgufError(
            f"{_quoted(written)} is an address, and nothing is downloaded.",
            "Download the GGUF file, and name it with -m.",
        )
    skipped = next((file for file in found.skipped if file.path.name == written), None)
    if skipped is not None:
        reason = skipped.reason.rstrip(".")
        return GgufError(f"{skipped.path} is not usable: {reason}.", LISTS)
    near = nearest(found.models, Path(written).name)
    count = len(found.models)
    others = f"none of the {count} models found" if count > 1 else "no model found"
    sentence = (
        f"There is no file {_quoted(str(path))}, and {others} where LM Studio, Hugging Face, "
        "Ollama, llama.cpp and Jan keep theirs has that name."
    )
    if near:
        return GgufError(sentence, f"The nearest: {_listed(near)}; {LISTS}")
    return GgufError(sentence, f"Check the path; {LISTS} STRATADESK_MODELS names more folders.")


def _listed(names: Sequence[str], shown: int = 6) -> str:
    words = ", ".join(map(_quoted, names[:shown]))
    more = len(names) - shown
    return f"{words} and {more} more" if more > 0 else words


def _quoted(text: str) -> str:
    from stratadesk.engine.gguf_cursor import quote

    return quote(text, limit=1000)
