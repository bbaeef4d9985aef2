"""Where each tensor lies in its file, checked against the size of that file."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from stratadesk.engine.gguf_cursor import DAMAGED, quote
from stratadesk.engine.gguf_header import Header, TensorEntry
from stratadesk.engine.tensor_formats import HOST_FORMATS, TensorFormat, format_by_id
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.units import GIB, format_bytes

MAX_TENSOR_BYTES = 1024 * GIB


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor and its place.

    `shape` is row-major as in NumPy: the last axis is a row, whose values are contiguous and
    stored in blocks of `format`. `offset` counts bytes from the start of the file that holds
    it, which is number `shard` of `GgufFile.shards`.
    """

    name: str
    shape: tuple[int, ...]
    format: TensorFormat
    offset: int
    n_bytes: int
    shard: int

    @property
    def end(self) -> int:
        """The byte after the last one, in its shard."""
        return self.offset + self.n_bytes


def place_tensors(header: Header, file_bytes: int, shard: int) -> list[TensorInfo]:
    """Work out size and place of every tensor of one file of `file_bytes` bytes.

    Raises:
        UnsupportedModelError: a tensor type this version has never heard of.
        GgufError: offsets that are unaligned, overlap or lead out of the file, a row that is
            not whole blocks, or a file that is shorter than its tensors.
    """
    infos = [_place(header, entry, shard) for entry in header.tensors]
    if _is_gapless(infos, header):
        _check_complete(infos, header, file_bytes)
    else:
        _check_apart(infos, header.label)
        _check_inside(infos, header.label, file_bytes)
    return infos


def _place(header: Header, entry: TensorEntry, shard: int) -> TensorInfo:
    stored = _known_format(header, entry)
    n_bytes = _stored_bytes(header, entry, stored)
    if entry.offset % header.alignment:
        words = f"has offset {entry.offset:,}, which is not a multiple of the alignment"
        raise _damage(header, entry, f"{words} {header.alignment}")
    offset = header.data_start + entry.offset
    return TensorInfo(entry.name, entry.dims[::-1], stored, offset, n_bytes, shard)


def _known_format(header: Header, entry: TensorEntry) -> TensorFormat:
    stored = format_by_id(entry.type_id)
    if stored is None:
        raise UnsupportedModelError(
            f"Tensor {quote(entry.name)} of {header.label} has the unknown type {entry.type_id}; "
            f"this version computes {', '.join(HOST_FORMATS)}.",
            "Choose another quantization of this model, or a newer StrataDesk.",
        )
    return stored


def _stored_bytes(header: Header, entry: TensorEntry, stored: TensorFormat) -> int:
    row, *others = entry.dims
    if row % stored.block_values:
        words = f"has rows of {row:,} values, but {stored.name} needs multiples of"
        raise _damage(header, entry, f"{words} {stored.block_values}")
    n_bytes = stored.row_bytes(row) * prod(others)
    if n_bytes > MAX_TENSOR_BYTES:
        raise _damage(header, entry, f"claims {n_bytes:,} bytes, more than any model has")
    return n_bytes


def _damage(header: Header, entry: TensorEntry, words: str) -> GgufError:
    return GgufError(f"Tensor {quote(entry.name)} of {header.label} {words}.", DAMAGED)


def _is_gapless(infos: Sequence[TensorInfo], header: Header) -> bool:
    """Tell whether each tensor follows the one before it, as every writer lays them out.

    Only then do sizes and offsets confirm each other, and a file that ends too early is known
    to be cut short rather than damaged.
    """
    expected = header.data_start
    for info in infos:
        if info.offset != expected:
            return False
        expected = -(-info.end // header.alignment) * header.alignment
    return True


def _check_complete(infos: Sequence[TensorInfo], header: Header, file_bytes: int) -> None:
    needed = infos[-1].end if infos else 0
    if needed > file_bytes:
        cut = next(info for info in infos if info.end > file_bytes)
        raise GgufError(
            f"{header.label} is truncated: it needs {needed:,} bytes and has {file_bytes:,}; "
            f"the data end within tensor {quote(cut.name)}.",
            f"Download it again ({format_bytes(needed - file_bytes)} are missing).",
        )


def _check_apart(infos: Sequence[TensorInfo], label: str) -> None:
    for before, after in pairwise(sorted(infos, key=lambda info: info.offset)):
        if before.end > after.offset:
            raise GgufError(
                f"Tensors {quote(before.name)} and {quote(after.name)} of {label} overlap: the "
                f"first takes {before.n_bytes:,} bytes from byte {before.offset:,}, the second "
                f"begins at byte {after.offset:,}.",
                DAMAGED,
            )


def _check_inside(infos: Sequence[TensorInfo], label: str, file_bytes: int) -> None:
    for info in infos:
        if info.end > file_bytes:
            raise GgufError(
                f"Tensor {quote(info.name)} of {label} lies beyond the end of the file: "
                f"{info.n_bytes:,} bytes from byte {info.offset:,} in a file of "
                f"{file_bytes:,} bytes.",
                DAMAGED,
            )
