"""PDH on Windows: the video memory of every process, which is what Task Manager shows.

An instance of the counters is named like `pid_4242_luid_0x00000000_0x0000D1E5_phys_0`.
"""

import ctypes
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_int64, c_uint16, c_uint32, c_void_p
from typing import Any, ClassVar

from stratadesk.engine.vram.program_names import program_name
from stratadesk.engine.vram.readings import ProgramList, ProgramUse, Source
from stratadesk.engine.vram.sources import Unavailable
from stratadesk.engine.vram.windows_abi import check, function, load_library, read_wide, wide

DEDICATED = r"\GPU Process Memory(*)\Dedicated Usage"
SHARED = r"\GPU Process Memory(*)\Shared Usage"
FORMAT_LARGE = 0x400
MORE_DATA = 0x800007D2
VALID = (0, 1)
"""Status of a value: valid, and valid and new."""
TRIES = 4
"""The list may grow between the call that tells its size and the one that fetches it."""

_INSTANCE = re.compile(r"pid_(\d+)_luid_0x([0-9a-f]{8})_0x([0-9a-f]{8})_phys_\d+", re.IGNORECASE)


class CounterItem(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE_ITEM_W with a 64-bit integer as value."""

    _fields_: ClassVar = [("name", c_void_p), ("status", c_uint32), ("value", c_int64)]


class PdhSource:
    """All processes on one card. `luid` tells which, or raises Unavailable."""

    def __init__(
        self,
        luid: Callable[[], int],
        load: Callable[[], Any] = lambda: load_library("pdh"),
        name_of: Callable[[int], str | None] = program_name,
    ) -> None:
        self._luid = luid
        self._load = load
        self._name_of = name_of
        self._query: _Query | None = None

    def read_programs(self) -> ProgramList:
        """Dedicated and shared bytes of each process."""
        try:
            luid = self._luid()
            query = self._opened()
            query.collect()
            dedicated, shared = query.usage(DEDICATED, luid), query.usage(SHARED, luid)
        except Unavailable as reason:
            self.close()
            return ProgramList(Source.PDH, None, str(reason))
        pids = sorted(dedicated.keys() | shared.keys())
        uses = (
            ProgramUse(pid, self._name_of(pid), dedicated.get(pid), shared.get(pid)) for pid in pids
        )
        return ProgramList(Source.PDH, tuple(uses))

    def close(self) -> None:
        """Close the query; the next read opens another."""
        query, self._query = self._query, None
        if query is not None:
            query.close()

    def _opened(self) -> "_Query":
        if self._query is None:
            self._query = _Query(self._load())
        return self._query


class _Query:
    """A PDH query with both counters; `usage` tells of the last `collect`."""

    def __init__(self, pdh: Any) -> None:
        self._pdh = pdh
        self._handle = c_void_p()
        opened = function(pdh, "PdhOpenQueryW", c_void_p, c_void_p, POINTER(c_void_p))
        check("PdhOpenQuery", opened(None, None, byref(self._handle)))
        try:
            self._counters = {path: self._add(path) for path in (DEDICATED, SHARED)}
        except Unavailable:
            self.close()
            raise

    def collect(self) -> None:
        """Take the values of now."""
        collect = function(self._pdh, "PdhCollectQueryData", c_void_p)
        check("PdhCollectQueryData", collect(self._handle))

    def usage(self, path: str, luid: int) -> dict[int, int]:
        """Bytes by pid on the card `luid`; values that are not valid are left out."""
        sums: dict[int, int] = defaultdict(int)
        for name, value in self._values(path):
            found = _INSTANCE.fullmatch(name)
            if found and int(found[2] + found[3], 16) == luid:
                sums[int(found[1])] += value
        return dict(sums)

    def close(self) -> None:
        """Close the query and its counters."""
        function(self._pdh, "PdhCloseQuery", c_void_p)(self._handle)

    def _add(self, path: str) -> c_void_p:
        counter = c_void_p()
        name = "PdhAddEnglishCounterW"
        types = (c_void_p, POINTER(c_uint16), c_void_p, POINTER(c_void_p))
        add = function(self._pdh, name, *types)
        check(f"PdhAddEnglishCounter {path}", add(self._handle, wide(path), None, byref(counter)))
        return counter

    def _values(self, path: str) -> Iterator[tuple[str, int]]:
        """Name and value of each instance."""
        number = c_uint32()
        buffer = self._fetch(self._counters[path], number)
        items = ctypes.cast(buffer, POINTER(CounterItem))
        for item in items[: number.value]:
            if item.status in VALID:
                yield read_wide(item.name), int(item.value)

    def _fetch(self, counter: c_void_p, number: c_uint32) -> ctypes.Array[Any]:
        """All items, with the names they point to behind them in the same buffer."""
        types = (c_void_p, c_uint32, POINTER(c_uint32), POINTER(c_uint32), c_void_p)
        fetch = function(self._pdh, "PdhGetFormattedCounterArrayW", *types)
        size = c_uint32()
        buffer = (c_int64 * 0)()
        for _ in range(TRIES):
            pointer = buffer if len(buffer) else None
            status = fetch(counter, FORMAT_LARGE, byref(size), byref(number), pointer)
            if status & 0xFFFFFFFF != MORE_DATA:
                check("PdhGetFormattedCounterArray", status)
                return buffer
            if size.value == 0:
                return buffer
            buffer = (c_int64 * (-(-size.value // 8)))()
            size.value = ctypes.sizeof(buffer)
        raise Unavailable(f"the list of processes grew {TRIES} times while it was read")
