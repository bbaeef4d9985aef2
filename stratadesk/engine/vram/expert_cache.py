"""Which experts are in VRAM slots: hits, victims, loans to prompts, and the way back.

One thread calls it, the engine's; copies may run elsewhere and are reported to it. The residency
map names a slot only while that slot holds the complete bytes of that expert, whatever copies,
loans, returns and changes of size lie between.

A copy has a ticket that is never used again, so the end of one that its slot was taken from
publishes nothing. And a slot into which such a copy may still be writing is nobody's until it
has ended: ask `writing` before other bytes go to a place that was lent or unmapped.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stratadesk.engine.vram.cache_counters import CacheCounters
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.refill import RoutingCounts, reserve_returning
from stratadesk.engine.vram.replacement import Replacement
from stratadesk.engine.vram.slot_states import (
    NEVER,
    NO_EXPERT,
    NO_SLOT,
    NO_TICKET,
    Placement,
    PlacementKind,
    Reservation,
    SlotState,
)
from stratadesk.engine.vram.slot_table import SlotTable
from stratadesk.engine.vram.table_check import violations
from stratadesk.engine.vram.use_rates import UseRates

FILTER_BELOW = 3
"""A layer with fewer slots than this many times `used` replaces by rate of use, not by LRU."""


class ExpertCache:
    """Residency of `experts` experts in each layer of `geometry`, `used` of them per token.

    Of the arena, the first `slots` slots are mapped. Layers are counted among those with
    experts. `filter_below` is the number of slots a layer below which `use_rates` decides what
    is replaced; None stands for `FILTER_BELOW` * `used`, and 0 makes every layer plain LRU.
    """

    def __init__(
        self,
        geometry: ArenaGeometry,
        experts: int,
        used: int,
        slots: int,
        *,
        filter_below: int | None = None,
    ) -> None:
        self._slot_bytes = geometry.slot_bytes
        self._experts = experts
        self._used = used
        self._step = NEVER
        self._table = SlotTable(geometry.layers, experts, slots)
        self._rates = UseRates(geometry.layers, experts)
        below = FILTER_BELOW * used if filter_below is None else filter_below
        self._replacement = Replacement(self._table, self._rates, below)
        self._routing = RoutingCounts(geometry.layers, experts)
        self._put_out = np.full((geometry.layers, experts), NEVER, np.int64)
        self._counters = CacheCounters()
        self._window_start = CacheCounters()

    @property
    def slots(self) -> int:
        """Number of mapped slots, the lent ones included."""
        return self._table.mapped

    @property
    def lent(self) -> int:
        """Number of LENT slots: those from 0 on."""
        return self._table.lent

    @property
    def reserved(self) -> int:
        """Number of RESERVED slots."""
        return self.states()[SlotState.RESERVED]

    @property
    def residency(self) -> NDArray[np.int32]:
        """Read-only view: [layer, expert] → slot with its complete bytes, or `NO_SLOT`."""
        view = self._table.residency.view()
        view.flags.writeable = False
        return view

    @property
    def counters(self) -> CacheCounters:
        """All events so far."""
        return self._counters.copy()

    def take_window(self) -> CacheCounters:
        """Return the events since the last call."""
        start, self._window_start = self._window_start, self._counters.copy()
        return self._window_start - start

    def states(self) -> dict[SlotState, int]:
        """Return how many slots are in each state; the sum is the most ever mapped."""
        return self._table.counts()

    def begin_step(self) -> None:
        """Begin the next decode step: slots used before may be replaced from now on."""
        self._step += 1
        self._rates.begin_step()

    def resolve(self, layer: int, experts: Sequence[int]) -> tuple[Placement, ...]:
        """Say where this step finds each of the distinct `experts` that its tokens use.

        Hits are stamped first, so none of them is replaced by a miss of the same step. A miss
        takes a slot of its layer that is EMPTY, or else the one unused for longest; RESERVED,
        LENT, FILLING and UNMAPPED slots and those stamped in this step are out of the question.
        Without one, it is a bypass. It is also a bypass

        - where a layer has few slots (see `use_rates`) and all that could be replaced are
          likelier to be used than the missed expert; the coldest is compared, not the oldest;
        - while an earlier fill of the same expert has not ended.

        An expert that the refill has in hand is missed like any other: RESERVED slots are the
        refill's alone. If it then comes in here, the refill's copy is dropped.

        Raises:
            ValueError: an expert named twice, or a number that is no expert.
        """
        self._validate(experts)
        self._rates.note(layer, experts)
        slots = self._table.residency[layer, experts].tolist()
        hits = [slot for slot in slots if slot != NO_SLOT]
        self._table.stamp[hits] = self._step
        self._counters.hits += len(hits)
        victims = []
        if len(hits) < len(slots) and self._table.mapped:
            victims = self._replacement.victims(layer, self._step)
        return tuple(
            self._missed(layer, expert, victims)
            if slot == NO_SLOT
            else Placement(PlacementKind.HIT, layer, expert, slot, NO_TICKET)
            for expert, slot in zip(experts, slots, strict=True)
        )

    def filled(self, fill: Placement) -> bool:
        """The copy of `fill` is complete: its expert is resident from now on.

        Returns False, and changes nothing, if the slot was lent or unmapped meanwhile.
        """
        if not self._ended(fill, SlotState.FILLING):
            return False
        self._table.publish(fill.slot, self._table.stamp.item(fill.slot))
        self._counters.filled += 1
        self._counters.bytes_filled += self._slot_bytes[fill.layer]
        return True

    def fill_failed(self, fill: Placement) -> None:
        """The copy of `fill` has ended without success: its slot is EMPTY, if it is still its."""
        if self._ended(fill, SlotState.FILLING):
            self._table.vacate(fill.slot)
            self._counters.fills_failed += 1

    def lend(self, count: int) -> None:
        """Take slots 0 to `count` - 1 out of the map: LENT, until `give_back`.

        Their experts, and those that were on the way there, are candidates for the refill.
        Wait until `writing(0, count)` is empty before other bytes go there.

        Raises:
            InvariantError: slots are lent already, or `count` are not mapped.
        """
        if self._table.lent or not 0 <= count <= self._table.mapped:
            raise InvariantError(
                f"{count} slots cannot be lent: {self._table.lent} of "
                f"{self._table.mapped} mapped slots are lent already."
            )
        self._put_out.fill(NEVER)
        for slot in range(count):
            self._remember(slot)
        self._withdraw(range(count), SlotState.LENT)
        self._table.lent = count

    def give_back(self, counts: NDArray[np.int64] | None = None) -> list[Reservation]:
        """End the loan: slots become RESERVED for experts that should come back, or EMPTY.

        `counts` are the prompt's uses per [layer, expert] (`take_routing`). They decide what
        comes back; without them it is what was there before. Returned in the order of copying.
        See `refill_order` and `reserve_returning`.
        """
        if counts is not None:
            self._rates.note_prompt(counts, self._used)
        lent, self._table.lent = self._table.lent, 0
        self._withdraw(range(lent), SlotState.EMPTY)
        wanted = np.zeros_like(self._put_out) if counts is None else counts
        reserved = reserve_returning(self._table, lent, wanted, self._put_out, self._step)
        self._counters.reserved += len(reserved)
        return reserved

    def begin_copy(self, reservation: Reservation) -> bool:
        """Ask whether to copy the expert into its slot now; if so, it counts as writing.

        False: the reservation has lapsed, because the slot was lent or unmapped, or is given up
        here, because the expert has come in on demand.
        """
        if not self._table.is_current(reservation, SlotState.RESERVED):
            return False
        if self._dropped(reservation):
            return False
        self._table.begin_copy(reservation)
        return True

    def commit(self, reservation: Reservation) -> bool:
        """The copy is complete: the expert is resident, as if used by the present step.

        Returns False if the slot was lent or unmapped meanwhile (nothing changes) or the expert
        has come in or is coming in on demand (the slot is EMPTY then).

        Raises:
            InvariantError: the copy was never begun.
        """
        began = self._table.writer[reservation.slot] == reservation.ticket
        if not self._ended(reservation, SlotState.RESERVED):
            return False
        if not began:
            raise InvariantError(f"A copy was committed that never began: {reservation}.")
        if self._dropped(reservation):
            return False
        self._table.publish(reservation.slot, self._step)
        self._counters.refilled += 1
        self._counters.bytes_refilled += self._slot_bytes[reservation.layer]
        return True

    def abandon(self, reservation: Reservation) -> None:
        """The copy has failed or will not be made: the slot is EMPTY, if it is still its."""
        if self._ended(reservation, SlotState.RESERVED):
            self._table.vacate(reservation.slot)
            self._counters.refills_abandoned += 1

    def trim(self, slots: int) -> None:
        """Keep at most `slots` slots; those behind become UNMAPPED, whatever they were.

        Wait until `writing(slots)` is empty before their memory is unmapped.

        Raises:
            InvariantError: it would unmap lent slots.
        """
        if slots < self._table.lent:
            raise InvariantError(
                f"The slots cannot be cut to {slots} while {self._table.lent} are lent."
            )
        self._withdraw(range(slots, self._table.mapped), SlotState.UNMAPPED)
        self._table.mapped = min(slots, self._table.mapped)

    def grow(self, slots: int) -> None:
        """Have at least `slots` slots; the new ones are EMPTY."""
        self._table.extend(slots)
        self._withdraw(range(self._table.mapped, slots), SlotState.EMPTY)
        self._table.mapped = max(slots, self._table.mapped)

    def writing(self, first: int = 0, end: int | None = None) -> list[int]:
        """Return the slots from `first` to before `end` into which a copy may be writing."""
        found = np.flatnonzero(self._table.writer[first:end] != NO_TICKET)
        return (found + first).tolist()

    def forget_copies(self) -> None:
        """After a failure: give up every fill and reservation, ended or not.

        Only when no copy can be running, and what they report from then on means nothing.
        """
        self._table.writer.fill(NO_TICKET)
        for slot in self._table.slots_in(SlotState.FILLING, SlotState.RESERVED):
            self._withdraw(range(slot, slot + 1), SlotState.EMPTY)

    def count_routing(self, layer: int, experts: ArrayLike) -> None:
        """Count the experts that a prompt's tokens use in `layer`, integers of any shape.

        Raises:
            ValueError: a number that is no expert.
        """
        self._routing.add(layer, experts)

    def take_routing(self) -> NDArray[np.int64]:
        """Return uses per [layer, expert] since the last call."""
        return self._routing.take()

    def check(self) -> None:
        """Verify slots, map and counters.

        Raises:
            InvariantError: a rule is broken; with all numbers.
        """
        states = self.states()
        found = violations(self._table, self._step) + self._counters.violations(
            states[SlotState.FILLING], states[SlotState.RESERVED]
        )
        if found:
            summary = ", ".join(f"{count} {state.name}" for state, count in states.items())
            raise InvariantError(f"Expert cache: {'; '.join(found)} ({summary}).")

    def _validate(self, experts: Sequence[int]) -> None:
        distinct = set(experts)
        if len(distinct) < len(experts) or not all(0 <= e < self._experts for e in distinct):
            raise ValueError(f"not distinct experts of {self._experts}: {list(experts)}")

    def _missed(self, layer: int, expert: int, victims: list[int]) -> Placement:
        self._counters.misses += 1
        if victims and not self._table.coming[layer, expert]:
            if self._replacement.admits(layer, expert, victims[-1]):
                return self._fill(layer, expert, victims.pop())
            self._counters.turned_away += 1
        self._counters.bypasses += 1
        self._counters.bytes_streamed += self._slot_bytes[layer]
        return Placement(PlacementKind.BYPASS, layer, expert, NO_SLOT, NO_TICKET)

    def _fill(self, layer: int, expert: int, slot: int) -> Placement:
        self._counters.fills += 1
        ticket = self._table.start_fill(slot, expert, self._step)
        return Placement(PlacementKind.FILL, layer, expert, slot, ticket)

    def _ended(self, copy: Placement | Reservation, state: SlotState) -> bool:
        """Note that `copy` writes no more; say whether the slot is still in `state` for it."""
        self._table.end_copy(copy)
        return self._table.is_current(copy, state)

    def _dropped(self, reservation: Reservation) -> bool:
        """Give up a reservation whose expert has come in on demand; say whether it has."""
        if not self._table.is_present(reservation.layer, reservation.expert):
            return False
        self._table.vacate(reservation.slot)
        self._counters.refills_dropped += 1
        return True

    def _remember(self, slot: int) -> None:
        """Note the slot's expert, if there is one, as put out by a loan."""
        expert = self._table.expert.item(slot)
        if expert != NO_EXPERT:
            layer = slot % self._table.layers
            # A refill may be complete before the first step, and NEVER means not put out.
            stamp = max(self._table.stamp.item(slot), NEVER + 1)
            self._put_out[layer, expert] = max(stamp, self._put_out.item(layer, expert))

    def _withdraw(self, slots: range, state: SlotState) -> None:
        """Take whatever the slots hold or wait for out of the map, and set their state."""
        for slot in slots:
            before = self._table.vacate(slot, state)
            self._counters.fills_dropped += before is SlotState.FILLING
            self._counters.refills_withdrawn += before is SlotState.RESERVED
