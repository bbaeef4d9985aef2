"""The first facts of a GGUF file, read from its first kilobytes for lists of many files."""

from dataclasses import dataclass
from pathlib import Path

from stratadesk.engine.gguf_cursor import Cursor
from stratadesk.engine.gguf_header import iter_entries, read_counts
from stratadesk.engine.gguf_mapping import MappedFile
from stratadesk.engine.gguf_metadata import MetadataValue


@dataclass(frozen=True, slots=True)
class Peek:
    """What stands before the vocabulary; a text or number that is not there is "" or 0.

    `kind` is `general.type`: "model", "adapter", "mmproj", "imatrix". `tensors` counts those
    of this file alone, `blocks` is the model's block count.
    """

    architecture: str
    kind: str
    tensors: int
    blocks: int


def peek(path: Path) -> Peek:
    """Read the start of one file; neither its vocabulary nor its tensor table is looked at.

    Raises:
        GgufError: the file is unreadable, or what is read of it is not sound GGUF.
    """
    file = MappedFile(path)
    try:
        cursor = Cursor(file.buffer, file.label)
        n_tensors, n_entries = read_counts(cursor)
        facts = _entries_before_vocabulary(cursor, n_entries)
    finally:
        file.close()
    architecture = _text(facts, "general.architecture")
    blocks = facts.get(f"{architecture}.block_count", 0)
    return Peek(
        architecture=architecture,
        kind=_text(facts, "general.type"),
        tensors=n_tensors,
        blocks=blocks if isinstance(blocks, int) else 0,
    )


def _entries_before_vocabulary(cursor: Cursor, n_entries: int) -> dict[str, MetadataValue]:
    facts: dict[str, MetadataValue] = {}
    for key, value in iter_entries(cursor, n_entries):
        facts[key] = value
        if key.startswith("tokenizer.") and "general.architecture" in facts:
            break
    return facts


def _text(facts: dict[str, MetadataValue], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""
