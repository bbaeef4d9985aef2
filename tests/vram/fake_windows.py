"""Stand-ins for dxgi.dll and pdh.dll: C callbacks and real tables of methods in memory.

The readers call them as they call Windows, by function pointer, method index and structure
layout. The figures come from files written by hand after Microsoft's documentation of both
interfaces; they were not recorded on Windows.
"""

import ctypes
import json
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_int32, c_uint16, c_uint32, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

OK, NOT_FOUND, NO_INTERFACE, REMOVED = 0, 0x887A0002, 0x80004002, 0x887A0005
MORE_DATA, NO_DATA = 0x800007D2, 0x800007D5
FACTORY1 = UUID("770aae78-f26f-4dba-a829-253c83d1b387").bytes_le
ADAPTER3 = UUID("645967a4-1392-4310-a798-8053ce3e93fd").bytes_le
METHODS = 18


def load_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def signed(status: int) -> int:
    return c_int32(status).value


def put(address: int, fmt: "type[ctypes._SimpleCData[Any]]", offset: int, value: int) -> None:
    fmt.from_address(address + offset).value = value


class ComObject:
    """An object in memory whose first word points to its table of methods."""

    def __init__(self, methods: dict[int, tuple[list[Any], Callable[..., int]]]) -> None:
        self.references = 0
        methods = {**methods, 2: ([], self._release)}
        self._callbacks = {
            index: CFUNCTYPE(c_int32, c_void_p, *types)(
                lambda _this, *given, call=call: call(*given)
            )
            for index, (types, call) in methods.items()
        }
        self._table = (c_void_p * METHODS)()
        for index, callback in self._callbacks.items():
            self._table[index] = ctypes.cast(callback, c_void_p)
        self._object = c_void_p(ctypes.addressof(self._table))
        self.address = ctypes.addressof(self._object)

    def hand_out(self, target: int) -> int:
        self.references += 1
        put(target, c_void_p, 0, self.address)
        return OK

    def _release(self) -> int:
        self.references -= 1
        assert self.references >= 0, "released more often than taken"
        return self.references


class FakeDxgi:
    """Adapters as the lines of a file describe them; `lines` may be changed between reads."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        self.status = OK
        self.adapters = [self._adapter(number) for number in range(len(lines))]
        self.factory = ComObject({12: ([c_uint32, c_void_p], self._enumerate)})
        self.CreateDXGIFactory1 = CFUNCTYPE(c_int32, c_void_p, c_void_p)(self._create)

    @property
    def references(self) -> int:
        return self.factory.references + sum(one.references for one in self.adapters)

    def _create(self, guid: int, target: int) -> int:
        assert ctypes.string_at(guid, 16) == FACTORY1
        return self.factory.hand_out(target)

    def _enumerate(self, number: int, target: int) -> int:
        if number >= len(self.adapters):
            return signed(NOT_FOUND)
        return self.adapters[number].hand_out(target)

    def _adapter(self, number: int) -> ComObject:
        return ComObject(
            {
                0: ([c_void_p, c_void_p], lambda guid, out: self._query(number, guid, out)),
                10: ([c_void_p], lambda target: self._describe(self.lines[number], target)),
                14: (
                    [c_uint32, c_uint32, c_void_p],
                    lambda node, group, out: self._memory(self.lines[number], node, group, out),
                ),
            }
        )

    def _query(self, number: int, guid: int, target: int) -> int:
        if ctypes.string_at(guid, 16) != ADAPTER3 or self.lines[number].get("old"):
            return signed(NO_INTERFACE)
        return self.adapters[number].hand_out(target)

    def _describe(self, line: dict[str, Any], target: int) -> int:
        """DXGI_ADAPTER_DESC1: 256 bytes of name, four UINT, three SIZE_T, LUID, flags."""
        put(target, c_uint32, 256, int(line["vendor"], 16))
        put(target, ctypes.c_uint64, 272, line["dedicated"])
        put(target, ctypes.c_uint64, 296, int(line["luid"], 16))
        return OK

    def _memory(self, line: dict[str, Any], node: int, group: int, target: int) -> int:
        assert node == 0
        budget, usage = (line["budget"], line["usage"]) if group == 0 else (1 << 34, line["shared"])
        put(target, ctypes.c_uint64, 0, budget)
        put(target, ctypes.c_uint64, 8, usage)
        return signed(self.status)


class FakePdh:
    """Counter instances as the lines of a file describe them."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        self.collected: list[dict[str, Any]] | None = None
        self.growing = 0
        self.status = OK
        self.queries = 0
        self.paths: dict[int, str] = {}
        size = POINTER(c_uint32)
        self._functions: dict[str, tuple[list[Any], Callable[..., int]]] = {
            "PdhOpenQueryW": ([c_void_p, c_void_p, c_void_p], self._open),
            "PdhAddEnglishCounterW": ([c_void_p, POINTER(c_uint16), c_void_p, c_void_p], self._add),
            "PdhCollectQueryData": ([c_void_p], self._collect),
            "PdhGetFormattedCounterArrayW": ([c_void_p, c_uint32, size, size, c_void_p], self._get),
            "PdhCloseQuery": ([c_void_p], self._close),
        }

    def library(self) -> Any:
        return SimpleNamespace(
            **{
                name: CFUNCTYPE(c_int32, *types)(call)
                for name, (types, call) in self._functions.items()
            }
        )

    def _open(self, _source: int, _data: int, target: int) -> int:
        self.queries += 1
        put(target, c_void_p, 0, 77)
        return OK

    def _add(self, query: int, path: Any, _data: int, target: int) -> int:
        assert query == 77
        units: list[str] = []
        while unit := path[len(units)]:
            units.append(chr(unit))
        number = 100 + len(self.paths)
        self.paths[number] = "".join(units)
        put(target, c_void_p, 0, number)
        return OK

    def _collect(self, query: int) -> int:
        assert query == 77
        self.collected = [dict(line) for line in self.lines]
        return signed(self.status)

    def _close(self, query: int) -> int:
        assert query == 77
        self.queries -= 1
        return OK

    def _get(self, counter: int, kind: int, size: Any, count: Any, buffer: int | None) -> int:
        """PDH_FMT_COUNTERVALUE_ITEM_W, 24 bytes each, then the names they point to."""
        assert kind == 0x400
        assert self.collected is not None
        if self.growing:
            self.growing -= 1
            self.collected.append(
                {**self.collected[0], "instance": "pid_999999_luid_0x0_0x0_phys_0"}
            )
        key = "dedicated" if self.paths[counter].endswith("Dedicated Usage") else "shared"
        names = [line["instance"].encode("utf-16-le") + b"\0\0" for line in self.collected]
        needed = 24 * len(names) + sum(map(len, names))
        if buffer is None or size[0] < needed:
            size[0] = needed
            return signed(MORE_DATA)
        behind = buffer + 24 * len(names)
        for number, (line, name) in enumerate(zip(self.collected, names, strict=True)):
            ctypes.memmove(behind, name, len(name))
            put(buffer, c_void_p, 24 * number, behind)
            put(buffer, c_uint32, 24 * number + 8, line.get("status", 0))
            put(buffer, ctypes.c_int64, 24 * number + 16, line[key])
            behind += len(name)
        count[0] = len(names)
        return OK
