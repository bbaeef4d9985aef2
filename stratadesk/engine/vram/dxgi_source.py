"""DXGI on Windows: how much of the card Windows lets this process use, and how much it does.

Calls IDXGIAdapter3::QueryVideoMemoryInfo, which needs Windows 10. Segment group LOCAL is the
card's own memory, NON_LOCAL is RAM that the card reads.
"""

import ctypes
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar

from stratadesk.engine.vram.readings import CardFigure, Source
from stratadesk.engine.vram.sources import Unavailable
from stratadesk.engine.vram.windows_abi import (
    Guid,
    Luid,
    check,
    com_method,
    function,
    load_library,
    release,
)

FACTORY1 = "770aae78-f26f-4dba-a829-253c83d1b387"
ADAPTER3 = "645967a4-1392-4310-a798-8053ce3e93fd"
QUERY_INTERFACE, GET_DESC1, ENUM_ADAPTERS1, QUERY_MEMORY = 0, 10, 12, 14
LOCAL, NON_LOCAL = 0, 1
NO_SUCH_ADAPTER = 0x887A0002
NVIDIA = 0x10DE


class AdapterDescription(ctypes.Structure):
    """DXGI_ADAPTER_DESC1."""

    _fields_: ClassVar = [
        ("name", c_uint16 * 128),
        ("vendor", c_uint32),
        ("device", c_uint32),
        ("subsystem", c_uint32),
        ("revision", c_uint32),
        ("dedicated_video", c_size_t),
        ("dedicated_system", c_size_t),
        ("shared_system", c_size_t),
        ("luid", Luid),
        ("flags", c_uint32),
    ]


class MemoryInfo(ctypes.Structure):
    """DXGI_QUERY_VIDEO_MEMORY_INFO, in bytes."""

    _fields_: ClassVar = [
        ("budget", c_uint64),
        ("usage", c_uint64),
        ("available_for_reservation", c_uint64),
        ("reserved", c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class _Adapter:
    pointer: c_void_p
    luid: int
    dedicated: int

    def query(self, group: int) -> MemoryInfo:
        info = MemoryInfo()
        method = com_method(self.pointer, QUERY_MEMORY, c_uint32, c_uint32, POINTER(MemoryInfo))
        check("QueryVideoMemoryInfo", method(0, group, byref(info)))
        return info


class DxgiSource:
    """The adapter with this LUID (CUDA tells it), or the only one that NVIDIA made."""

    def __init__(
        self,
        luid: int | None = None,
        load: Callable[[], Any] = lambda: load_library("dxgi"),
    ) -> None:
        self._wanted = luid
        self._load = load
        self._adapter: _Adapter | None = None

    def find_luid(self) -> int:
        """The LUID of the card that is read. Raises Unavailable when there is none."""
        return self._opened().luid

    def read(self) -> CardFigure:
        """The budget, and what this process uses of the card and of RAM for the card."""
        try:
            adapter = self._opened()
            local, non_local = adapter.query(LOCAL), adapter.query(NON_LOCAL)
        except Unavailable as reason:
            self.close()
            return CardFigure(Source.DXGI, why=str(reason))
        return CardFigure(
            Source.DXGI,
            total=adapter.dedicated,
            budget=int(local.budget),
            own=int(local.usage),
            own_shared=int(non_local.usage),
        )

    def close(self) -> None:
        """Release the adapter; the next read looks for it again."""
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            release(adapter.pointer)

    def _opened(self) -> _Adapter:
        if self._adapter is None:
            self._adapter = _find_adapter(self._load(), self._wanted)
        return self._adapter


def _find_adapter(dxgi: Any, luid: int | None) -> _Adapter:
    """The adapter with this LUID, or the only one of NVIDIA. Raises Unavailable otherwise."""
    factory = _create_factory(dxgi)
    adapters = []
    try:
        for adapter in _adapters(factory):
            adapters.append(adapter)
        return _with_figures(_choose(adapters, luid))
    finally:
        for adapter in adapters:
            release(adapter.pointer)
        release(factory)


def _create_factory(dxgi: Any) -> c_void_p:
    factory = c_void_p()
    create = function(dxgi, "CreateDXGIFactory1", POINTER(Guid), POINTER(c_void_p))
    check("CreateDXGIFactory1", create(byref(Guid.parse(FACTORY1)), byref(factory)))
    return factory


def _adapters(factory: c_void_p) -> Iterator[_Adapter]:
    """NVIDIA's adapters; whoever takes one releases it."""
    enumerate_at = com_method(factory, ENUM_ADAPTERS1, c_uint32, POINTER(c_void_p))
    index = 0
    while True:
        pointer = c_void_p()
        status = enumerate_at(index, byref(pointer))
        if status & 0xFFFFFFFF == NO_SUCH_ADAPTER:
            return
        check("EnumAdapters1", status)
        described = _describe(pointer)
        if described is None:
            release(pointer)
        else:
            yield described
        index += 1


def _describe(pointer: c_void_p) -> _Adapter | None:
    """What the adapter is; None if NVIDIA did not make it or it does not say."""
    description = AdapterDescription()
    method = com_method(pointer, GET_DESC1, POINTER(AdapterDescription))
    if method(byref(description)) != 0 or description.vendor != NVIDIA:
        return None
    return _Adapter(pointer, description.luid.number, int(description.dedicated_video))


def _choose(adapters: list[_Adapter], luid: int | None) -> _Adapter:
    if luid is not None:
        adapters = [adapter for adapter in adapters if adapter.luid == luid]
    if not adapters:
        raise Unavailable("DXGI lists no such NVIDIA adapter")
    if len(adapters) > 1:
        raise Unavailable(f"{len(adapters)} NVIDIA adapters, and nobody said which one")
    return adapters[0]


def _with_figures(adapter: _Adapter) -> _Adapter:
    """The same adapter through the interface that has memory figures, with a reference."""
    pointer = c_void_p()
    query = com_method(adapter.pointer, QUERY_INTERFACE, POINTER(Guid), POINTER(c_void_p))
    check("IDXGIAdapter3", query(byref(Guid.parse(ADAPTER3)), byref(pointer)))
    return _Adapter(pointer, adapter.luid, adapter.dedicated)
