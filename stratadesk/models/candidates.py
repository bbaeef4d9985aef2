"""Turns the content of a store into files that may be models, and reasons for the others."""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratadesk.engine.gguf_mapping import system_path
from stratadesk.engine.gguf_shards import (
    group_sets,
    missing_error,
    missing_shards,
    parse_shard_name,
    raw_part_error,
)
from stratadesk.models.found import SkippedFile
from stratadesk.models.guide import BUNDLED, GUIDE
from stratadesk.models.stores import OLLAMA, Store
from stratadesk.models.walk import Walk

_UNFINISHED = (".part", ".partial", ".incomplete", ".downloadinprogress", ".crdownload", ".tmp")
_NAMELESS = ("model", "ggml-model")
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files that belong together, in order, and the name to show."""

    files: tuple[Path, ...]
    name: str


def candidates(store: Store) -> Iterable[Candidate | SkippedFile]:
    """Return everything in the store that looks like a GGUF model or like part of one."""
    folder = store.folder
    try:
        mode = os.stat(system_path(folder)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return [SkippedFile(folder, _missing(store))] if store.named_by_user else []
    except OSError as error:
        return [SkippedFile(folder, f"cannot be read: {error.strerror}")]
    if not stat.S_ISDIR(mode):
        return [Candidate((folder,), GUIDE)] if store.name == BUNDLED else _from_files([folder])
    return _from_ollama(folder) if store.name == OLLAMA else _from_walk(folder)


def _missing(store: Store) -> str:
    return f"there is no such {'file' if store.name == BUNDLED else 'folder'}"


def _from_walk(folder: Path) -> Iterator[Candidate | SkippedFile]:
    walk = Walk(folder)
    yield from _from_files(list(walk.files()))
    yield from walk.skipped


def _from_files(paths: Sequence[Path]) -> Iterator[Candidate | SkippedFile]:
    for path in paths:
        if error := raw_part_error(path.name):
            yield SkippedFile(path, str(error))
        elif _is_unfinished(path):
            yield SkippedFile(path, "an unfinished download")
    models = [path for path in paths if path.suffix.lower() == ".gguf"]
    for files in group_sets(models):
        yield _candidate(files)


def _candidate(files: Sequence[Path]) -> Candidate | SkippedFile:
    first = files[0]
    shard = parse_shard_name(first.name)
    if shard is None:
        return Candidate((first,), _display_name(first, first.stem))
    missing = missing_shards(first.parent, shard)
    if missing:
        return SkippedFile(first, missing_error(shard, missing).sentence)
    ordered = (first.parent / shard.sibling(number) for number in range(1, shard.count + 1))
    return Candidate(tuple(ordered), _display_name(first, shard.stem))


def _display_name(path: Path, stem: str) -> str:
    return path.parent.name if stem.lower() in _NAMELESS else stem


def _is_unfinished(path: Path) -> bool:
    """Tell whether a download program is, or was, busy with this GGUF file."""
    name = path.name.lower()
    if not name.endswith(_UNFINISHED):
        return False
    return ".gguf" in name or _starts_like_gguf(path)


def _starts_like_gguf(path: Path) -> bool:
    try:
        # Opening a named pipe would wait for somebody to write into it.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _from_ollama(folder: Path) -> Iterator[Candidate | SkippedFile]:
    walk = Walk(folder / "manifests")
    for manifest in walk.files() if os.path.isdir(folder / "manifests") else ():
        name = _ollama_name(manifest.relative_to(folder / "manifests"))
        try:
            digest = _model_digest(json.loads(manifest.read_bytes()))
        except OSError as error:
            yield SkippedFile(manifest, f"a manifest that cannot be read: {error.strerror}")
            continue
        except (ValueError, RecursionError):
            yield SkippedFile(manifest, "a manifest that cannot be read: it is not JSON")
            continue
        blob = folder / "blobs" / digest.replace(":", "-")
        if not digest:
            yield SkippedFile(manifest, "a manifest without a GGUF model")
        elif not os.path.isfile(blob):
            yield SkippedFile(manifest, f"an unfinished download: {blob.name} is missing")
        else:
            yield Candidate((blob,), name)
    yield from walk.skipped


def _ollama_name(manifest: Path) -> str:
    """Return "model:tag", with the namespace before it unless it is Ollama's own library."""
    *places, model, tag = manifest.parts if len(manifest.parts) > 1 else ("", *manifest.parts)
    namespace = places[-1] if places else "library"
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _model_digest(manifest: object) -> str:
    layers = manifest.get("layers") if isinstance(manifest, Mapping) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, Mapping) and layer.get("mediaType") == _OLLAMA_MODEL:
            digest = layer.get("digest")
            if isinstance(digest, str) and "/" not in digest and "\\" not in digest:
                return digest
    return ""
