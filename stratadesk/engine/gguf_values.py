"""Reads metadata values, whose types and lengths come from the file and are not trusted."""

from struct import Struct

import numpy as np

from stratadesk.engine.gguf_cursor import DAMAGED, Cursor, quote
from stratadesk.engine.gguf_metadata import MetadataValue, NumberArray
from stratadesk.engine.gguf_strings import StringArray
from stratadesk.errors import GgufError
from stratadesk.units import MIB

MAX_ARRAY_ITEMS = 4 * 1024 * 1024
"""Sixteen times the largest vocabulary known."""

MAX_TEXT_BYTES = 64 * MIB
"""Whole tokenizer files are stored as one string at times."""

_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBER_CODES = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_LAYOUTS = {type_id: Struct(f"<{code}") for type_id, code in _NUMBER_CODES.items()}
_DTYPES = {type_id: np.dtype(f"<{code}") for type_id, code in _NUMBER_CODES.items()}


def read_value(cursor: Cursor, key: str) -> MetadataValue:
    """Read the type and the value that follow `key`.

    Raises:
        GgufError: unknown type, length that does not fit, or an array of arrays.
    """
    what = f"the value of {quote(key)}"
    type_id = cursor.u32(what)
    if type_id == _STRING:
        return _text(cursor.string(MAX_TEXT_BYTES, what))
    if type_id == _ARRAY:
        return _read_array(cursor, what)
    return _read_number(cursor, type_id, what)


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _read_number(cursor: Cursor, type_id: int, what: str) -> int | float | bool:
    layout = _LAYOUTS.get(type_id)
    if layout is None:
        raise _unknown_type(cursor, type_id, what)
    value = cursor.number(layout, what)
    return value if type_id != _BOOL else _truth(cursor, value, what)


def _truth(cursor: Cursor, value: float, what: str) -> bool:
    if value not in (0, 1):
        raise GgufError(f"In {cursor.label}, {what} is the byte {value}, not 0 or 1.", DAMAGED)
    return value == 1


def _read_array(cursor: Cursor, what: str) -> NumberArray | StringArray:
    type_id = cursor.u32(what)
    if type_id == _STRING:
        count = cursor.count(8, MAX_ARRAY_ITEMS, f"strings as {what}")
        return StringArray(*cursor.strings(count, what), f"{what} in {cursor.label}")
    dtype = _DTYPES.get(type_id)
    if dtype is None:
        raise _unknown_type(cursor, type_id, f"an item of {what}")
    count = cursor.count(dtype.itemsize, MAX_ARRAY_ITEMS, f"numbers as {what}")
    numbers = np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype)
    return numbers if type_id != _BOOL else _truths(cursor, numbers, what)


def _truths(cursor: Cursor, numbers: NumberArray, what: str) -> NumberArray:
    for value in np.unique(numbers).tolist():
        _truth(cursor, value, f"an item of {what}")
    return numbers.view(np.bool_)


def _unknown_type(cursor: Cursor, type_id: int, what: str) -> GgufError:
    kind = "an array within an array" if type_id == _ARRAY else f"of the unknown type {type_id}"
    return GgufError(f"In {cursor.label}, {what} at byte {cursor.position:,} is {kind}.", DAMAGED)
