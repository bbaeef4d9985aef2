"""A reader that never leaves its buffer: every length is checked before it is used."""

from array import array
from mmap import mmap
from struct import Struct
from typing import NoReturn

from stratadesk.errors import GgufError
from stratadesk.units import MIB, format_bytes

MAX_HEADER_BYTES = 128 * MIB
"""No real header comes near; a damaged length cannot make us read a whole model."""

DAMAGED = "The file is cut short or damaged; download it again."

_U32 = Struct("<I")
_U64 = Struct("<Q")


def quote(text: str, limit: int = 100) -> str:
    """Put a name from a file into quotes, without control characters, cut after `limit`."""
    short = text if len(text) <= limit else f"{text[:limit]}…"
    return f"'{short}'" if short.isprintable() else repr(short)


class Cursor:
    """Reads little-endian fields of a header one after the other.

    `label` is the quoted file name for error sentences; `position` counts bytes from the start
    of the file. All methods raise GgufError instead of reading past the end. `what` names the
    field that is read, to be the subject of the sentence.
    """

    __slots__ = ("_buffer", "_end", "_file_bytes", "label", "position")

    def __init__(self, buffer: mmap | bytes, label: str) -> None:
        self._buffer = buffer
        self._file_bytes = len(buffer)
        self._end = min(self._file_bytes, MAX_HEADER_BYTES)
        self.label = label
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes that may still be read."""
        return self._end - self.position

    def number(self, layout: Struct, what: str) -> int | float:
        """Read one number of the given layout."""
        if layout.size > self.remaining:
            self._fail_at_end(layout.size, what)
        (value,) = layout.unpack_from(self._buffer, self.position)
        self.position += layout.size
        return value  # type: ignore[no-any-return]

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number."""
        return int(self.number(_U32, what))

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        return int(self.number(_U64, what))

    def count(self, item_bytes: int, limit: int, what: str) -> int:
        """Read a 64-bit count of items that take at least `item_bytes` each."""
        count = self.u64(f"the number of {what}")
        if count > limit:
            raise GgufError(
                f"{self.label} announces {count:,} {what}, more than the {limit:,} allowed.",
                DAMAGED,
            )
        if count * item_bytes > self.remaining:
            raise GgufError(
                f"{self.label} announces {count:,} {what} at byte {self.position - 8:,}, "
                f"but only {self.remaining:,} bytes follow.",
                DAMAGED,
            )
        return count

    def take(self, n_bytes: int, what: str) -> bytes:
        """Copy the next `n_bytes` out of the file."""
        if n_bytes > self.remaining:
            self._fail_length(n_bytes, f"but only {self.remaining:,} follow", what)
        start, self.position = self.position, self.position + n_bytes
        return bytes(self._buffer[start : self.position])

    def string(self, limit: int, what: str) -> bytes:
        """Read a length and as many bytes, at most `limit`."""
        length = self.u64(what)
        if length > limit:
            self._fail_length(length, f"more than the {limit:,} allowed", what)
        return self.take(length, what)

    def strings(self, count: int, what: str) -> "tuple[bytes, array[int]]":
        """Read `count` strings as one block and where in it each one's length field starts.

        The starts end with the block's length, so there are `count` + 1 of them.
        """
        buffer, read_length, last = self._buffer, _U64.unpack_from, self._end - 8
        first = position = self.position
        starts = array("Q")
        for _ in range(count):
            if position > last:
                self._fail_strings(len(starts), count, what)
            starts.append(position - first)
            position += 8 + read_length(buffer, position)[0]
        block = self.take(position - first, what)
        starts.append(len(block))
        return block, starts

    def _fail_at_end(self, n_bytes: int, what: str) -> NoReturn:
        if self._end < self._file_bytes:
            self._fail_long_header()
        raise GgufError(
            f"{self.label} is truncated: {what} ends at byte {self.position + n_bytes:,}, "
            f"but the file has only {self._file_bytes:,} bytes.",
            "Download it again.",
        )

    def _fail_length(self, n_bytes: int, bound: str, what: str) -> NoReturn:
        raise GgufError(
            f"In {self.label}, {what} at byte {self.position:,} claims {n_bytes:,} bytes, {bound}.",
            DAMAGED,
        )

    def _fail_strings(self, read: int, count: int, what: str) -> NoReturn:
        if self._end < self._file_bytes:
            self._fail_long_header()
        raise GgufError(
            f"In {self.label}, {what} announces {count:,} strings, "
            f"but the file of {self._file_bytes:,} bytes ends after {read:,} of them.",
            DAMAGED,
        )

    def _fail_long_header(self) -> NoReturn:
        raise GgufError(
            f"The header of {self.label} does not end within {format_bytes(MAX_HEADER_BYTES)}.",
            DAMAGED,
        )
