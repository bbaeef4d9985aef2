"""Where programs keep GGUF files, on Linux and on Windows."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratadesk.models.guide import BUNDLED, guide_path

OLLAMA = "Ollama"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder to search, or a file; `named_by_user` ones are reported when they do not exist."""

    name: str
    folder: Path
    named_by_user: bool = False


def guide_store(env: Mapping[str, str]) -> list[Store]:
    """Return the place of the bundled guide, none where there is no guide."""
    guide = guide_path(env)
    return [Store(BUNDLED, guide, named_by_user=True)] if guide else []


def known_stores(
    env: Mapping[str, str], home: Path, *, windows: bool, folders: Sequence[str] = ()
) -> list[Store]:
    """Return the stores of this user: `folders` and those named by settings come first."""
    in_variable = env.get("STRATADESK_MODELS", "").split(os.pathsep)
    others = [folder for folder in folders if folder not in in_variable]
    return [
        *_named_by_user("STRATADESK_MODELS", in_variable),
        *_named_by_user("settings", others),
        *_working_folder(),
        *(Store("LM Studio", folder) for folder in _lm_studio(home)),
        *(Store("Hugging Face", folder) for folder in _hugging_face(env, home)),
        *(Store(OLLAMA, folder) for folder in _ollama(env, home, windows)),
        *(Store("llama.cpp", folder) for folder in _llama_cpp(env, home, windows)),
        *(Store("Jan", folder) for folder in _jan(env, home, windows)),
    ]


def _named_by_user(name: str, folders: Iterable[str]) -> Iterator[Store]:
    for folder in folders:
        if folder.strip():
            path = Path(os.path.expanduser(folder.strip()))
            yield Store(name, path, named_by_user=True)


def _working_folder() -> Iterator[Store]:
    try:
        yield Store("models folder here", Path.cwd() / "models")
    except FileNotFoundError:
        return


def _lm_studio(home: Path) -> Iterator[Path]:
    pointer = _read_text(home / ".lmstudio-home-pointer").strip()
    roots = [Path(pointer)] if pointer else []
    for root in dict.fromkeys([*roots, home / ".lmstudio", home / ".cache" / "lm-studio"]):
        chosen = _downloads_folder(root / "settings.json")
        if chosen:
            yield Path(chosen)
        yield root / "models"


def _downloads_folder(settings: Path) -> str:
    try:
        chosen = json.loads(_read_text(settings) or "{}")["downloadsFolder"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return chosen if isinstance(chosen, str) else ""


def _hugging_face(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    hub = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if hub:
        yield Path(hub)
    elif env.get("HF_HOME"):
        yield Path(env["HF_HOME"]) / "hub"
    else:
        yield _cache(env, home) / "huggingface" / "hub"


def _ollama(env: Mapping[str, str], home: Path, windows: bool) -> Iterator[Path]:
    if env.get("OLLAMA_MODELS"):
        yield Path(env["OLLAMA_MODELS"])
    yield home / ".ollama" / "models"
    if not windows:
        yield Path("/usr/share/ollama/.ollama/models")


def _llama_cpp(env: Mapping[str, str], home: Path, windows: bool) -> Iterator[Path]:
    if env.get("LLAMA_CACHE"):
        yield Path(env["LLAMA_CACHE"])
    if windows:
        yield _windows_folder(env, "LOCALAPPDATA", home / "AppData" / "Local") / "llama.cpp"
    else:
        yield _cache(env, home) / "llama.cpp"


def _jan(env: Mapping[str, str], home: Path, windows: bool) -> Iterator[Path]:
    if windows:
        roaming = _windows_folder(env, "APPDATA", home / "AppData" / "Roaming")
        data = [roaming / "Jan" / "data"]
    else:
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
        share = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
        data = [config / "Jan" / "data", share / "Jan" / "data"]
    for folder in data:
        yield folder / "llamacpp" / "models"
    yield home / "jan" / "models"


def _cache(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("XDG_CACHE_HOME") or home / ".cache")


def _windows_folder(env: Mapping[str, str], variable: str, default: Path) -> Path:
    return Path(env.get(variable) or default)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
