"""String arrays of a GGUF header, decoded only when somebody asks for an item."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

from stratadesk.errors import GgufError

_LENGTH_BYTES = 8


class StringArray(Sequence[str]):
    """The strings of one array as the file holds them.

    `block` is a run of strings, each behind its 8-byte length; `starts[i]` is where item i's
    length field begins in it, and one more entry gives the end. `what` names key and file.
    Any access raises GgufError for an item that is not valid UTF-8.
    """

    __slots__ = ("_block", "_starts", "_what")

    def __init__(self, block: bytes, starts: "array[int]", what: str) -> None:
        self._block = block
        self._starts = starts
        self._what = what

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        raw = self._block[self._starts[position] + _LENGTH_BYTES : self._starts[position + 1]]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._invalid(position) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_list())

    def to_list(self) -> list[str]:
        """Decode all items at once, several times faster than one by one."""
        block = self._block
        try:
            return [
                str(block[start + _LENGTH_BYTES : end], "utf-8")
                for start, end in pairwise(self._starts)
            ]
        except UnicodeDecodeError:
            raise self._invalid(self._first_invalid()) from None

    def _first_invalid(self) -> int:
        for position, (start, end) in enumerate(pairwise(self._starts)):
            try:
                self._block[start + _LENGTH_BYTES : end].decode("utf-8")
            except UnicodeDecodeError:
                return position
        return 0

    def _invalid(self, position: int) -> GgufError:
        return GgufError(
            f"String {position:,} of {self._what} is not valid UTF-8.",
            "The file is damaged; download it again.",
        )
