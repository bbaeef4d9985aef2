"""An expert cache, real bytes, and everybody who touches them, one small step at a time.

Steps are the shipped functions of the cache and the single writes between them: half a copy, a
prompt's buffers over lent slots, memory given back to the card. After each step `verify` compares
bytes, so a step that publishes, replaces or reuses a slot too early is caught at once.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.slot_states import (
    NEVER,
    NO_SLOT,
    Placement,
    PlacementKind,
    Reservation,
    SlotState,
)
from stratadesk.engine.vram.slot_table import Copy

PIECES = 2
"""Writes that one copy consists of."""
PROMPT_BYTE = 0xFF
FRESH_BYTE = 0xFE
"""What memory holds that was just mapped."""


class WrongBytes(AssertionError):
    """A byte is not what whoever may read it expects."""


class Action(NamedTuple):
    """One step: the name of a method of `CacheWorld` and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{self.arguments}"


@dataclass
class Flight:
    """A copy under way: `done` of its pieces are written.

    `awaited` says whether the step that asked for it still goes on and will read it.
    """

    copy: Copy
    done: int = 0
    awaited: bool = False


class CacheWorld:
    """`capacity` slots at most, over layers whose slots have `slot_bytes` bytes each."""

    def __init__(
        self,
        slot_bytes: tuple[int, ...],
        experts: int,
        slots: int,
        capacity: int,
        *,
        cache_class: type[ExpertCache] = ExpertCache,
        filter_below: int = 0,
        lates: int = 1,
        waits: bool = True,
    ) -> None:
        self.geometry = ArenaGeometry(0, 0, slot_bytes)
        self.experts = experts
        self.capacity = capacity
        self.backed = slots
        self.cache = cache_class(self.geometry, experts, 1, slots, filter_below=filter_below)
        self.memory = np.full(self.geometry.end_of(capacity), FRESH_BYTE, np.uint8)
        self.flights: list[Flight] = []
        self.pending: list[Reservation] = []
        self.late: list[Copy] = []
        self.reads: list[tuple[int, int, int]] = []
        self.scribbled = False
        self._lates = lates
        self._waits = waits
        self.cache.begin_step()

    # What decode does.

    def step(self) -> None:
        self._end_reads()
        self.cache.begin_step()

    def resolve(self, layer: int, experts: tuple[int, ...]) -> None:
        for placement in self.cache.resolve(layer, experts):
            if placement.kind is PlacementKind.HIT:
                self.reads.append((layer, placement.expert, placement.slot))
            elif placement.kind is PlacementKind.FILL:
                self.flights.append(Flight(placement, awaited=True))

    # What copies do, on demand or in the background.

    def begin(self) -> None:
        reservation = self.pending.pop(0)
        if self.cache.begin_copy(reservation):
            self.flights.append(Flight(reservation))

    def skip(self) -> None:
        self.cache.abandon(self.pending.pop(0))

    def write(self, index: int) -> None:
        flight = self.flights[index]
        if flight.copy.slot >= self.backed:
            raise WrongBytes(f"{flight.copy} writes into memory that was unmapped")
        piece = self._piece(flight.copy.slot, flight.done)
        source = self.expert_bytes(flight.copy.layer, flight.copy.expert)
        self._bytes(flight.copy.slot)[piece] = source[piece]
        flight.done += 1

    def finish(self, index: int) -> None:
        flight = self.flights.pop(index)
        if self._report(flight.copy) and flight.awaited:
            self.reads.append((flight.copy.layer, flight.copy.expert, flight.copy.slot))
        self._remember_late(flight.copy)

    def fail(self, index: int) -> None:
        copy = self.flights.pop(index).copy
        if isinstance(copy, Placement):
            self.cache.fill_failed(copy)
        else:
            self.cache.abandon(copy)
        self._remember_late(copy)

    def report_late(self, index: int) -> None:
        self._report(self.late.pop(index))

    def forget(self) -> None:
        self._end_reads()
        for flight in self.flights:
            self._remember_late(flight.copy)
        self.flights.clear()
        self.pending.clear()
        self.cache.forget_copies()

    # What prompts and changes of size do.

    def lend(self, count: int) -> None:
        self._end_reads()
        self.cache.lend(count)

    def scribble(self) -> None:
        self.memory[: self.geometry.end_of(self.cache.lent)] = PROMPT_BYTE
        self.scribbled = True

    def give_back(self, counts: tuple[tuple[int, ...], ...] | None) -> None:
        self.scribbled = False
        array = None if counts is None else np.array(counts, np.int64)
        self.pending += self.cache.give_back(array)

    def trim(self, slots: int) -> None:
        self._end_reads()
        self.cache.trim(slots)

    def unmap(self) -> None:
        self.backed = self.cache.slots
        self.memory[self.geometry.end_of(self.backed) :] = FRESH_BYTE

    def grow(self, slots: int) -> None:
        self.backed = max(self.backed, slots)
        self.cache.grow(slots)

    # Which steps are possible.

    def clone(self) -> "CacheWorld":
        """A world that goes on by itself, for worlds of plain LRU."""
        twin = copy(self)
        twin.cache = _clone_cache(self.cache)
        twin.memory = self.memory.copy()
        twin.flights = [replace(flight) for flight in self.flights]
        twin.pending, twin.late = self.pending.copy(), self.late.copy()
        twin.reads = self.reads.copy()
        return twin

    def do(self, action: Action) -> None:
        getattr(self, action.name)(*action.arguments)

    @property
    def may_scribble(self) -> bool:
        quiet = not self._waits or not self.cache.writing(0, self.cache.lent)
        return self.cache.lent > 0 and not self.scribbled and quiet

    @property
    def may_unmap(self) -> bool:
        quiet = not self._waits or not self.cache.writing(self.cache.slots)
        return self.backed > self.cache.slots and quiet

    def actions(self) -> Iterator[Action]:
        """Every possible step; windows of at most two experts, counts of two kinds."""
        yield Action("step")
        windows = chain.from_iterable(combinations(range(self.experts), n) for n in (1, 2))
        for window in windows:
            for layer in range(self.geometry.layers):
                yield Action("resolve", (layer, window))
        yield from self._copy_actions()
        yield from self._loan_actions()
        yield from self._size_actions()

    def _copy_actions(self) -> Iterator[Action]:
        for index, flight in enumerate(self.flights):
            yield Action("write" if flight.done < PIECES else "finish", (index,))
            yield Action("fail", (index,))
        for index in range(len(self.late)):
            yield Action("report_late", (index,))
        if self.pending:
            yield Action("begin")
            yield Action("skip")
        if self.flights or self.pending:
            yield Action("forget")

    def _loan_actions(self) -> Iterator[Action]:
        if not self.cache.lent:
            for count in range(1, self.cache.slots + 1):
                yield Action("lend", (count,))
        elif len(self.pending) <= self.capacity:
            yield Action("give_back", (None,))
            counts = tuple(range(self.experts))
            yield Action("give_back", ((counts,) * self.geometry.layers,))
        if self.may_scribble:
            yield Action("scribble")

    def _size_actions(self) -> Iterator[Action]:
        for slots in range(self.cache.lent, self.cache.slots):
            yield Action("trim", (slots,))
        for slots in range(self.cache.slots + 1, self.capacity + 1):
            yield Action("grow", (slots,))
        if self.may_unmap:
            yield Action("unmap")

    # What must be true after every step.

    def verify(self, *, rules: bool = True) -> None:
        """Compare bytes with whoever may read them, and with `rules` also the cache's own.

        Raises:
            WrongBytes: the map, a step that goes on, or a prompt would read wrong bytes.
            InvariantError: one of the cache's rules is broken.
        """
        for layer, expert in np.argwhere(self.cache.residency != NO_SLOT):
            slot = int(self.cache.residency[layer, expert])
            self._compare(slot, int(layer), int(expert), "the map names")
        for layer, expert, slot in self.reads:
            self._compare(slot, layer, expert, "this step reads")
        if self.scribbled:
            lent = self.memory[: self.geometry.end_of(self.cache.lent)]
            if (lent != PROMPT_BYTE).any():
                raise WrongBytes("a prompt's buffers were overwritten")
        if rules:
            self.cache.check()

    def key(self) -> tuple[object, ...]:
        """What is the same for two worlds that behave alike from now on.

        Steps count by their order only, tickets by whether they are still those of their slot,
        and bytes where somebody relies on them: in HOLDING slots and in the written pieces of
        copies. Other bytes are written before anyone may read them.
        """
        table = self.cache._table
        moments = sorted({NEVER, self.cache._step, *table.stamp, *self.cache._put_out.flat})
        rank = {moment: place for place, moment in enumerate(moments)}
        holding = table.slots_in(SlotState.HOLDING)
        return (
            table.state.tobytes(),
            table.expert.tobytes(),
            tuple(rank[stamp] for stamp in table.stamp),
            tuple(rank[stamp] for stamp in self.cache._put_out.flat),
            rank[self.cache._step],
            (table.mapped, table.lent, self.backed, self.scribbled),
            tuple(sorted(map(self._flight_key, self.flights))),
            tuple(map(self._copy_key, self.pending)),
            tuple(sorted(map(self._copy_key, self.late))),
            tuple(sorted(set(self.reads))),
            b"".join(self._bytes(slot).tobytes() for slot in holding),
        )

    def expert_bytes(self, layer: int, expert: int) -> NDArray[np.uint8]:
        """The bytes of an expert, different for each in every place."""
        place = np.arange(self.geometry.slot_bytes[layer])
        number = layer * self.experts + expert
        return ((place * 7 + number * 31) % 251).astype(np.uint8)

    def _bytes(self, slot: int) -> NDArray[np.uint8]:
        span = self.geometry.slot(slot)
        return self.memory[span.start : span.end]

    def _piece(self, slot: int, number: int) -> slice:
        size = self.geometry.slot(slot).size // PIECES
        return slice(number * size, (number + 1) * size)

    def _compare(self, slot: int, layer: int, expert: int, who: str) -> None:
        if not np.array_equal(self._bytes(slot), self.expert_bytes(layer, expert)):
            raise WrongBytes(f"{who} slot {slot} for expert {expert} of layer {layer}")

    def _report(self, copy: Copy) -> bool:
        if isinstance(copy, Placement):
            return self.cache.filled(copy)
        return self.cache.commit(copy)

    def _remember_late(self, copy: Copy) -> None:
        self.late = [*self.late, copy][-self._lates :]

    def _end_reads(self) -> None:
        self.reads.clear()
        for flight in self.flights:
            flight.awaited = False

    def _copy_key(self, copy: Copy) -> tuple[object, ...]:
        table = self.cache._table
        return (
            *(copy.layer, copy.expert, copy.slot, isinstance(copy, Placement)),
            bool(table.ticket[copy.slot] == copy.ticket),
            bool(table.writer[copy.slot] == copy.ticket),
        )

    def _flight_key(self, flight: Flight) -> tuple[object, ...]:
        written = slice(0, self._piece(flight.copy.slot, flight.done).start)
        return (
            *self._copy_key(flight.copy),
            *(flight.done, flight.awaited),
            self._bytes(flight.copy.slot)[written].tobytes(),
        )


def _clone_cache(cache: ExpertCache) -> ExpertCache:
    """A cache with a table and counters of its own; rates of use are shared, as LRU has none."""
    twin = copy(cache)
    twin._table = copy(cache._table)
    for name, value in vars(cache._table).items():
        if isinstance(value, np.ndarray):
            setattr(twin._table, name, value.copy())
    twin._replacement = copy(cache._replacement)
    twin._replacement._table = twin._table
    twin._put_out = cache._put_out.copy()
    twin._counters = copy(cache._counters)
    return twin
