"""How to call Windows libraries through ctypes: C functions and COM methods by their index.

Every structure is spelt out in fixed-width types, so that tests can stand in for a library with
C callbacks on any platform: on 64-bit Windows the calling conventions are the same. Layouts and
method order: the Windows SDK's headers dxgi.h, dxgi1_4.h and pdh.h.
"""

import ctypes
from array import array
from collections.abc import Callable
from ctypes import POINTER, c_int32, c_uint8, c_uint16, c_uint32, c_void_p
from itertools import count, takewhile
from typing import Any, ClassVar
from uuid import UUID

from stratadesk.engine.vram.sources import Unavailable

function_type: Callable[..., Any] = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
"""Makes function types of the platform's system calling convention."""


class Guid(ctypes.Structure):
    """The id of a COM interface, 16 bytes as in memory."""

    _fields_: ClassVar = [("bytes", c_uint8 * 16)]

    @classmethod
    def parse(cls, text: str) -> "Guid":
        """Make one from its usual spelling."""
        return cls.from_buffer_copy(UUID(text).bytes_le)


def load_library(name: str) -> Any:
    """Load a library of Windows. Raises Unavailable elsewhere, and when it is not there."""
    loader = getattr(ctypes, "WinDLL", None)
    if loader is None:
        raise Unavailable(f"{name} exists on Windows only")
    try:
        return loader(name)
    except OSError as error:
        raise Unavailable(f"{name} could not be loaded: {error}") from error


def function(library: Any, name: str, *parameters: Any) -> Callable[..., int]:
    """The function `name` that returns a 32-bit status. Raises Unavailable if it is missing."""
    try:
        found = getattr(library, name)
    except AttributeError as error:
        raise Unavailable(f"this Windows has no {name}") from error
    return cast_function(found, *parameters)


def cast_function(found: Any, *parameters: Any) -> Callable[..., int]:
    """Give a C function its parameter types and a 32-bit status as result."""
    address = ctypes.cast(found, c_void_p).value
    prototype: Callable[..., Callable[..., int]] = function_type(c_int32, *parameters)
    return prototype(address)


def com_method(instance: c_void_p, index: int, *parameters: Any) -> Callable[..., int]:
    """Method `index` of a COM object, bound to it."""
    table = ctypes.cast(instance, POINTER(POINTER(c_void_p))).contents
    method = cast_function(c_void_p(table[index]), c_void_p, *parameters)
    return lambda *arguments: method(instance, *arguments)


def release(instance: c_void_p) -> None:
    """Give up a reference to a COM object (IUnknown::Release)."""
    com_method(instance, 2)()


def check(call: str, status: int) -> None:
    """Raise Unavailable, naming call and status, when `status` is not 0."""
    if status != 0:
        raise Unavailable(f"{call} failed with 0x{status & 0xFFFFFFFF:08X}")


def wide(text: str) -> ctypes.Array[c_uint16]:
    """`text` as a null-terminated string of 16-bit characters."""
    units = text.encode("utf-16-le") + b"\0\0"
    return (c_uint16 * (len(units) // 2)).from_buffer_copy(units)


def read_wide(address: int) -> str:
    """The null-terminated string of 16-bit characters at `address`."""
    units = ctypes.cast(address, POINTER(c_uint16))
    codes = array("H", takewhile(bool, (units[index] for index in count())))
    return codes.tobytes().decode("utf-16-le", errors="replace")


class Luid(ctypes.Structure):
    """The id of an adapter until the next restart."""

    _fields_: ClassVar = [("low", c_uint32), ("high", c_int32)]

    @property
    def number(self) -> int:
        """Both halves as one unsigned 64-bit number."""
        return int((self.high & 0xFFFFFFFF) << 32 | self.low)
