"""Where a forward pass finds its experts: in slots, in the staging slot, or in the host tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from stratadesk.engine.card_memory import CardMemory
from stratadesk.engine.vram.geometry import Span, aligned
from stratadesk.engine.vram.slot_states import NO_SLOT, Placement, PlacementKind, Reservation
from stratadesk.engine.vram.slot_store import CopyError, ExpertPart, SlotStore
from stratadesk.kernels.host.experts import HostExpertLayer, HostRouting, Supply

Addresses = npt.NDArray[np.int64]

RoutingSink = Callable[[int, npt.NDArray[np.int32]], None]
"""Is told the layer, counted among those with experts, and its experts [tokens, used]; they are
overwritten afterwards."""

COUNTED_AT_ONCE = 4_096
"""Counting a prompt's experts copies them as int64: so many at a time, 32 KiB."""


class HostExperts:
    """The host tier: every expert's parts as views of the mapped file.

    A slot holds the parts one behind the other, each at a multiple of `geometry.ALIGNMENT`.
    """

    def __init__(self) -> None:
        self.layers: list[HostExpertLayer] = []

    def add(self, layer: HostExpertLayer) -> None:
        """Take the experts of the next layer that has any."""
        self.layers.append(layer)

    def parts(self, layer: int, expert: int) -> Sequence[ExpertPart]:
        """The tensors of an expert and where each goes in a slot."""
        found = self.layers[layer]
        views = (weight.matrix(expert) for weight in found.parts)
        return [
            ExpertPart(offset, view)
            for offset, view in zip(self.offsets(found), views, strict=True)
        ]

    @staticmethod
    def offsets(layer: HostExpertLayer) -> Sequence[int]:
        """Where each part begins in a slot, in bytes."""
        sizes = [aligned(weight.matrix_bytes) for weight in layer.parts]
        return [0, *accumulate(sizes[:-1])]


class CardExperts:
    """Supplies experts by the phase: a prompt reads them in place, decoding fills slots.

    An expert in a slot is read through that slot's address, after `VramMachine.slot` has agreed.
    `verify` compares a slot's bytes with the host's before each use (tests, debugging). `watch` is
    told the experts of each chunk.
    """

    def __init__(self, memory: CardMemory, tier: HostExperts, *, verify: bool = False) -> None:
        self._memory = memory
        self._cache = memory.cache
        self._tier = tier
        self._store = SlotStore(memory.arena, tier, check_fills=verify)
        self._verify = verify
        self.reads_prompt = False
        self.watch: RoutingSink | None = None
        self.reserved: list[Reservation] = []

    def begin_pass(self) -> None:
        """A forward pass begins: what it uses is stamped with a step of its own."""
        self._cache.begin_step()

    def supply(self, layer: HostExpertLayer, chosen: HostRouting) -> Iterator[Supply]:
        """Yield all distinct experts of `chosen`; those that must be staged come one by one."""
        if self.watch is not None:
            self.watch(layer.index, chosen.experts)
        experts: list[int] = chosen.groups.tolist()
        if self.reads_prompt:
            self._count(layer.index, chosen.experts.reshape(-1))
            slots = self._cache.residency[layer.index, chosen.groups].tolist()
            yield self._at(layer, range(len(experts)), experts, slots)
        else:
            yield from self._decoded(layer, experts)

    def refill(self, most_bytes: int) -> None:
        """Bring back reserved experts, the most used first, at most `most_bytes` but one."""
        taken = 0
        while self.reserved and taken < most_bytes:
            reservation = self.reserved.pop(0)
            if not self._cache.begin_copy(reservation):
                continue
            with ExitStack() as undo:
                undo.callback(self._cache.abandon, reservation)
                self._store.refill(reservation.slot, reservation.layer, reservation.expert)
                undo.pop_all()
            self._cache.commit(reservation)
            taken += self._memory.arena.geometry.slot_bytes[reservation.layer]

    def _decoded(self, layer: HostExpertLayer, experts: list[int]) -> Iterator[Supply]:
        placements = self._cache.resolve(layer.index, experts)
        self._fill([place for place in placements if place.kind is PlacementKind.FILL])
        staged = [i for i, place in enumerate(placements) if self._is_staged(place)]
        direct = [i for i in range(len(placements)) if i not in staged]
        if direct:
            slots = [placements[i].slot for i in direct]
            yield self._at(layer, direct, [experts[i] for i in direct], slots)
        for position in staged:
            yield self._staged(layer, position, experts[position])

    def _is_staged(self, place: Placement) -> bool:
        pinned = self._memory.plan.host.is_pinned(place.layer, place.expert)
        return place.kind is PlacementKind.BYPASS and not pinned

    def _count(self, layer: int, experts: npt.NDArray[np.int32]) -> None:
        for first in range(0, experts.size, COUNTED_AT_ONCE):
            self._cache.count_routing(layer, experts[first : first + COUNTED_AT_ONCE])

    def _fill(self, places: Sequence[Placement]) -> None:
        """Copy missed experts into their slots; when one fails, none is left half done."""
        with ExitStack() as undo:
            for place in places:
                undo.callback(self._cache.fill_failed, place)
            for place in places:
                self._store.fill(place.slot, place.layer, place.expert)
                self._cache.filled(place)
            undo.pop_all()

    def _staged(self, layer: HostExpertLayer, position: int, expert: int) -> Supply:
        """Copy a pageable expert to the staging slot, for this supply alone."""
        start = self._memory.staging.start
        for part in self._tier.parts(layer.index, expert):
            span = Span(start + part.offset, start + part.offset + part.data.size)
            np.copyto(self._memory.arena.view(span), part.data)
        return Supply([position], self._in_arena(layer, [start]))

    def _at(
        self,
        layer: HostExpertLayer,
        positions: Sequence[int],
        experts: Sequence[int],
        slots: Sequence[int],
    ) -> Supply:
        """Experts where they lie: in their slots, or on the host for `NO_SLOT`."""
        on_host = [part.addresses(np.array(experts, np.int32)) for part in layer.parts]
        in_slot = [i for i, slot in enumerate(slots) if slot != NO_SLOT]
        if in_slot:
            starts = [self._slot_start(layer, experts[i], slots[i]) for i in in_slot]
            for part, addresses in zip(on_host, self._in_arena(layer, starts), strict=True):
                part[in_slot] = addresses
        return Supply(positions, on_host)

    def _slot_start(self, layer: HostExpertLayer, expert: int, slot: int) -> int:
        if self._verify:
            self._check_bytes(slot, layer.index, expert)
        return self._memory.machine.slot(slot).start

    def _check_bytes(self, slot: int, layer: int, expert: int) -> None:
        """Raise CopyError, with the memory FAILED, when a slot has lost its expert."""
        try:
            self._store.verify(slot, layer, expert)
        except CopyError as wrong:
            self._memory.machine.fail(wrong)
            raise

    def _in_arena(self, layer: HostExpertLayer, starts: Sequence[int]) -> Sequence[Addresses]:
        first = self._memory.arena.memory.address + np.array(starts, np.int64)
        return [first + offset for offset in self._tier.offsets(layer)]
