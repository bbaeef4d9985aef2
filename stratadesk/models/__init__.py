"""Finds GGUF models on this computer, in the folders where other programs keep them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stratadesk.models.found import Discovery, FoundModel, SkippedFile

__all__ = ["Discovery", "FoundModel", "SkippedFile", "find_models"]


def find_models(
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    folders: Sequence[str] = (),
) -> Discovery:
    """Look at the guide and search all known stores; nothing is written, only headers are read.

    `folders` are searched besides those that STRATADESK_MODELS names. `env` and `home` default
    to this process's environment and the user's home folder. Never raises for what it finds:
    files and folders that cannot be used are listed as skipped.
    """
    from stratadesk.models.discovery import discover
    from stratadesk.models.stores import guide_store, known_stores

    env = os.environ if env is None else env
    windows = os.name == "nt"
    stores = known_stores(env, home or Path.home(), windows=windows, folders=folders)
    return discover([*guide_store(env), *stores])
