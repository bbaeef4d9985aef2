"""Walks a GGUF header: fixed part, metadata, tensor table. Tensor data are not read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap

from stratadesk.engine.gguf_cursor import DAMAGED, Cursor, quote
from stratadesk.engine.gguf_metadata import MetadataGetters, MetadataValue, describe
from stratadesk.engine.gguf_values import read_value
from stratadesk.errors import GgufError

MAGIC = b"GGUF"
OLDEST_VERSION, NEWEST_VERSION = 2, 3
OTHER_FILE = "Choose the model's .gguf file, or download it again."
MAX_ENTRIES = 65_536
MAX_TENSORS = 131_072
MAX_NAME_BYTES = 65_535
MAX_ALIGNMENT = 65_536
MAX_DIMENSIONS = 4

_SMALLEST_ENTRY = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8
_OTHER_FORMATS = (
    (b"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded"),
    (b"<", "a web page: the download went wrong"),
    (b"PK\x03\x04", "a zip archive or PyTorch file"),
    (b"tjgg", "an old GGML file"),
    (b"fmgg", "an old GGML file"),
    (b"lmgg", "an old GGML file"),
)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A line of the tensor table: `dims` innermost first, `offset` from the start of the data."""

    name: str
    dims: tuple[int, ...]
    type_id: int
    offset: int


@dataclass(frozen=True)
class Header(MetadataGetters):
    """One file's header; tensor data begin at byte `data_start`, aligned to `alignment` bytes."""

    label: str
    metadata: Mapping[str, MetadataValue]
    tensors: Sequence[TensorEntry]
    alignment: int
    data_start: int


def read_header(buffer: mmap | bytes, label: str) -> Header:
    """Read a whole header.

    Raises:
        GgufError: not a GGUF file, or any length, type or name in it is unsound.
    """
    cursor = Cursor(buffer, label)
    n_tensors, n_entries = read_counts(cursor)
    metadata = _unique_entries(cursor, n_entries)
    tensors = [_read_tensor(cursor, index) for index in range(n_tensors)]
    alignment = _alignment(metadata, label)
    data_start = -(-cursor.position // alignment) * alignment
    return Header(label, metadata, tensors, alignment, data_start)


def read_counts(cursor: Cursor) -> tuple[int, int]:
    """Read the fixed part and return the numbers of tensors and of metadata entries."""
    _check_magic(cursor)
    _check_version(cursor.u32("the version"), cursor.label)
    n_tensors = cursor.count(_SMALLEST_TENSOR, MAX_TENSORS, "tensors")
    n_entries = cursor.count(_SMALLEST_ENTRY, MAX_ENTRIES, "metadata entries")
    return n_tensors, n_entries


def iter_entries(cursor: Cursor, n_entries: int) -> Iterator[tuple[str, MetadataValue]]:
    """Read metadata entries one by one, for callers that need only the first few."""
    for index in range(n_entries):
        key = _name(cursor, f"metadata key {index + 1}")
        yield key, read_value(cursor, key)


def _check_magic(cursor: Cursor) -> None:
    start = cursor.take(min(cursor.remaining, 32), "the first bytes")
    cursor.position = 0
    if MAGIC.startswith(start):
        cursor.u32("the fixed part")
    if not start.startswith(MAGIC):
        known = (words for magic, words in _OTHER_FORMATS if start.startswith(magic))
        seen = next(known, f"it starts with {_words(start[:4])}, not with GGUF")
        raise GgufError(f"{cursor.label} is not a GGUF file ({seen}).", OTHER_FILE)
    cursor.position = len(MAGIC)


def _words(start: bytes) -> str:
    """Write a few bytes as a text where they are one, else as numbers."""
    text = start.decode("ascii", "replace")
    return quote(text) if text.isascii() and text.isprintable() else f"the bytes {start.hex(' ')}"


def _check_version(version: int, label: str) -> None:
    if OLDEST_VERSION <= version <= NEWEST_VERSION:
        return
    if 0 < int.from_bytes(version.to_bytes(4, "little"), "big") <= NEWEST_VERSION:
        raise GgufError(
            f"{label} is a big-endian GGUF file; only little-endian files can be read.",
            "Download the little-endian file of this model.",
        )
    raise GgufError(
        f"{label} has GGUF version {version}; versions 2 and 3 can be read.",
        "Convert it anew." if version < OLDEST_VERSION else "Use a newer StrataDesk.",
    )


def _unique_entries(cursor: Cursor, n_entries: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for key, value in iter_entries(cursor, n_entries):
        if key in metadata:
            raise GgufError(f"{cursor.label} has the metadata key {quote(key)} twice.", DAMAGED)
        metadata[key] = value
    return metadata


def _read_tensor(cursor: Cursor, index: int) -> TensorEntry:
    name = _name(cursor, f"the name of tensor {index + 1}")
    what = f"the entry of tensor {quote(name)}"
    n_dims = cursor.u32(what)
    if not 1 <= n_dims <= MAX_DIMENSIONS:
        raise GgufError(
            f"Tensor {quote(name)} of {cursor.label} has {n_dims:,} dimensions; 1 to "
            f"{MAX_DIMENSIONS} are possible.",
            DAMAGED,
        )
    dims = tuple(cursor.u64(what) for _ in range(n_dims))
    if 0 in dims:
        raise GgufError(f"Tensor {quote(name)} of {cursor.label} has a dimension of 0.", DAMAGED)
    return TensorEntry(name, dims, cursor.u32(what), cursor.u64(what))


def _name(cursor: Cursor, what: str) -> str:
    start = cursor.position
    raw = cursor.string(MAX_NAME_BYTES, what)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise GgufError(
            f"In {cursor.label}, {what} at byte {start:,} is not valid UTF-8.", DAMAGED
        ) from None


def _alignment(metadata: dict[str, MetadataValue], label: str) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is int and 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0:
        return value
    seen = value if type(value) is int else describe(value)
    raise GgufError(
        f"'general.alignment' in {label} is {seen}, not a power of two up to {MAX_ALIGNMENT:,}.",
        DAMAGED,
    )
