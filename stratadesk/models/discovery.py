"""Judges candidates by their headers and leaves out what is there twice."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from stratadesk.engine.architectures import SUPPORTED
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.gguf_mapping import system_path
from stratadesk.engine.gguf_peek import Peek, peek
from stratadesk.engine.inspection import unsupported_architecture, why_unsupported
from stratadesk.errors import ModelError, StrataDeskError
from stratadesk.models.candidates import Candidate, candidates
from stratadesk.models.file_type import quantization
from stratadesk.models.found import Discovery, FoundModel, SkippedFile
from stratadesk.models.guide import BUNDLED, comes_along, damaged
from stratadesk.models.stores import Store
from stratadesk.units import KIB

_SAMPLE_BYTES = 64 * KIB


def discover(stores: Iterable[Store]) -> Discovery:
    """Search the stores in their order; of several copies the first one found is listed."""
    found, searched = _Collection(), list(stores)
    for store in searched:
        for candidate in candidates(store):
            if isinstance(candidate, SkippedFile):
                found.skip(candidate)
            else:
                found.judge(candidate, store.name)
    places = [store for store in searched if store.name != BUNDLED]
    return Discovery(found.models, found.skipped, places)


class _Collection:
    """The models and skipped files of a search so far."""

    def __init__(self) -> None:
        self.models: list[FoundModel] = []
        self.skipped: list[SkippedFile] = []
        self._by_file: dict[tuple[int, int] | str, Path] = {}
        self._by_size: defaultdict[int, list[Path]] = defaultdict(list)

    def skip(self, skipped: SkippedFile) -> None:
        """Note a file or folder that is not offered, once."""
        if skipped not in self.skipped:
            self.skipped.append(skipped)

    def judge(self, candidate: Candidate, store: str) -> None:
        """Add the candidate to the models, or to the skipped files with a reason."""
        first = candidate.files[0]
        try:
            reason = self._already_listed(first)
            if reason is None:
                reason = self._add(candidate, store)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        except StrataDeskError as error:
            reason = error.sentence
        if reason:
            self.skip(SkippedFile(first, reason))

    def _already_listed(self, first: Path) -> str | None:
        """Return why not to list a file reached before, "" for the very same path again."""
        status = os.stat(system_path(first))
        identity = (status.st_dev, status.st_ino) if status.st_ino else str(first.resolve())
        known = self._by_file.get(identity)
        if known is None:
            self._by_file[identity] = first
            return None
        return "" if known == first else f"the same file as {known}"

    def _add(self, candidate: Candidate, store: str) -> str | None:
        first = candidate.files[0]
        facts = peek(first)
        reason = _side_file(facts, candidate)
        if reason:
            return reason
        total = sum(os.stat(system_path(file)).st_size for file in candidate.files)
        for other in self._by_size[total]:
            if _sample(other) == _sample(first):
                return f"a copy of {other}"
        self._by_size[total].append(first)
        self.models.append(_model(candidate, store, facts, total))
        return None


def _model(candidate: Candidate, store: str, facts: Peek, total_bytes: int) -> FoundModel:
    why_not, stored_as = _judged(candidate.files[0], facts)
    return FoundModel(
        path=candidate.files[0],
        store=store,
        name=candidate.name,
        architecture=facts.architecture,
        total_bytes=total_bytes,
        shards=len(candidate.files),
        supported=why_not is None,
        why_not=why_not,
        quantization=stored_as,
    )


def _judged(first: Path, facts: Peek) -> tuple[str | None, str]:
    """Return why a model cannot run, by its family alone, else by its whole header; and its type.

    The header tells types and places of all tensors, so that a file cut short is seen without
    reading their data.
    """
    if facts.architecture not in SUPPORTED:
        return unsupported_architecture(facts.architecture), ""
    try:
        with GgufFile.open(first) as gguf:
            return why_unsupported(gguf), quantization(gguf.metadata)
    except ModelError as error:
        return str(damaged(error) if comes_along(first) else error), ""


def _side_file(facts: Peek, candidate: Candidate) -> str | None:
    """Return what the file is when it is no language model of its own."""
    name = candidate.files[0].name.lower()
    projector = facts.kind == "mmproj" or facts.architecture == "clip" or "mmproj" in name
    alone = len(candidate.files) == 1
    partial = alone and facts.tensors < facts.blocks
    reasons = (
        (projector, "a vision projector (mmproj), not a language model"),
        (facts.kind == "imatrix" or "imatrix" in name, "an importance matrix, not a model"),
        (facts.kind == "adapter", "a LoRA adapter, not a model"),
        (not facts.architecture, "its header names no architecture"),
        (alone and facts.tensors == 0, "a vocabulary only, without weights"),
        (partial and ("mtp" in name or "draft" in name), "a draft head (MTP) without its model"),
        (partial, f"a part of a model: {facts.tensors} tensors for {facts.blocks} layers"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _sample(path: Path) -> bytes:
    """Return a digest of the start and the end of a file."""
    with open(system_path(path), "rb") as file:
        start = file.read(_SAMPLE_BYTES)
        file.seek(-min(_SAMPLE_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return hashlib.sha256(start + file.read()).digest()
