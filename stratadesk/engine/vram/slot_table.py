"""The state of every slot, and the residency map that decode reads.

This is the mechanism alone: every change of a slot's state goes through here, so that the map
and the slots cannot part. Which expert goes where is decided in `expert_cache`.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.slot_states import (
    NEVER,
    NO_EXPERT,
    NO_SLOT,
    NO_TICKET,
    Placement,
    Reservation,
    SlotState,
)

Copy: TypeAlias = Placement | Reservation
"""What a copy into a slot is known by: its slot and its ticket."""


class SlotTable:
    """Slots 0 to `mapped` - 1 of the arena; slot s serves layer s % `layers`.

    Arrays indexed by slot: `state` (uint8), `expert` (int32, `NO_EXPERT` when the slot is for
    none), `stamp` (int64, the step of its last use), `ticket` (int64, of the fill or reservation
    that the slot is for) and `writer` (int64, the ticket of a copy that may still be writing
    into it, whatever has become of the slot since).

    Arrays indexed by [layer, expert]: `residency` (int32, the slot that holds the expert's
    complete bytes, or `NO_SLOT`) and `coming` (bool, a decode step is copying it in).

    `lent` slots from 0 on are LENT; those from `mapped` on are UNMAPPED.
    """

    def __init__(self, layers: int, experts: int, slots: int) -> None:
        self.layers = layers
        self.mapped = slots
        self.lent = 0
        self.state = np.full(slots, SlotState.EMPTY, np.uint8)
        self.expert = np.full(slots, NO_EXPERT, np.int32)
        self.stamp = np.full(slots, NEVER, np.int64)
        self.ticket = np.full(slots, NO_TICKET, np.int64)
        self.writer = np.full(slots, NO_TICKET, np.int64)
        self.residency = np.full((layers, experts), NO_SLOT, np.int32)
        self.coming = np.zeros((layers, experts), np.bool_)
        self._last_ticket = NO_TICKET

    @property
    def present(self) -> NDArray[np.bool_]:
        """Experts that hold a slot or are being copied into one on demand, [layer, expert]."""
        return self.coming | np.not_equal(self.residency, NO_SLOT)

    def is_present(self, layer: int, expert: int) -> bool:
        """Whether an expert holds a slot or is being copied into one on demand."""
        return bool(self.residency[layer, expert] != NO_SLOT or self.coming[layer, expert])

    def counts(self) -> dict[SlotState, int]:
        """Return how many slots are in each state."""
        found = np.bincount(self.state, minlength=len(SlotState)).tolist()
        return dict(zip(SlotState, found, strict=True))

    def is_in(self, *states: SlotState) -> NDArray[np.bool_]:
        """Return for every slot whether it is in one of `states`."""
        wanted = np.zeros(len(SlotState), np.bool_)
        wanted[list(states)] = True
        return wanted[self.state]

    def slots_in(self, *states: SlotState) -> list[int]:
        """Return the numbers of all slots in one of `states`, ascending."""
        return [int(slot) for slot in np.flatnonzero(self.is_in(*states))]

    def free_to_fill(self, layer: int, step: int) -> NDArray[np.int64]:
        """Return the slots of `layer` that a miss of `step` may take, in no useful order.

        Those are the EMPTY ones, unless a dropped copy may still be writing there, and the
        HOLDING ones that this step has not used.
        """
        mine = slice(layer, None, self.layers)
        empty = (self.state[mine] == SlotState.EMPTY) & (self.writer[mine] == NO_TICKET)
        old = (self.state[mine] == SlotState.HOLDING) & (self.stamp[mine] < step)
        return np.flatnonzero(empty | old) * self.layers + layer

    def latest_first(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `slots` from the latest used to the one unused for longest, EMPTY ones last."""
        return slots[np.argsort(-self.stamp[slots], kind="stable")]

    def start_fill(self, slot: int, expert: int, stamp: int) -> int:
        """Take the slot's expert out of the map and make it FILLING; return the copy's ticket.

        The copy counts as writing from now on.
        """
        self.vacate(slot)
        ticket = self._assign(slot, SlotState.FILLING, expert, stamp)
        self.coming[slot % self.layers, expert] = True
        self.writer[slot] = ticket
        return ticket

    def reserve(self, slot: int, expert: int, stamp: int) -> int:
        """Make an EMPTY slot RESERVED for `expert`; return the ticket of the copy to come."""
        return self._assign(slot, SlotState.RESERVED, expert, stamp)

    def begin_copy(self, copy: Copy) -> None:
        """Note that the copy of a reservation is writing from now on."""
        if self.writer[copy.slot] != NO_TICKET:
            raise InvariantError(
                f"Copy {copy.ticket} would begin in slot {copy.slot} while copy "
                f"{self.writer[copy.slot]} is still writing there."
            )
        self.writer[copy.slot] = copy.ticket

    def end_copy(self, copy: Copy) -> None:
        """Note that a copy writes no more; does nothing for one that did not begin."""
        if self.writer.item(copy.slot) == copy.ticket:
            self.writer[copy.slot] = NO_TICKET

    def is_current(self, copy: Copy, state: SlotState) -> bool:
        """Whether the slot is still in `state` for the very fill or reservation of `copy`."""
        slot = copy.slot
        return self.state.item(slot) == state and self.ticket.item(slot) == copy.ticket

    def publish(self, slot: int, stamp: int) -> None:
        """The bytes of the slot's expert are complete: HOLDING, and named by the map."""
        layer, expert = slot % self.layers, self.expert.item(slot)
        self.state[slot] = SlotState.HOLDING
        self.stamp[slot] = stamp
        self.coming[layer, expert] = False
        self.residency[layer, expert] = slot

    def vacate(self, slot: int, state: SlotState = SlotState.EMPTY) -> SlotState:
        """Take the slot's expert out of the map, if there is one; return the former state."""
        before = SlotState(self.state.item(slot))
        layer, expert = slot % self.layers, self.expert.item(slot)
        if before is SlotState.HOLDING:
            self.residency[layer, expert] = NO_SLOT
        elif before is SlotState.FILLING:
            self.coming[layer, expert] = False
        self._set(slot, state, NO_EXPERT, NEVER, NO_TICKET)
        return before

    def extend(self, slots: int) -> None:
        """Give slots up to `slots` a place in the table, UNMAPPED where they had none."""
        more = slots - len(self.state)
        if more > 0:
            self.state = _longer(self.state, more, SlotState.UNMAPPED)
            self.expert = _longer(self.expert, more, NO_EXPERT)
            self.stamp = _longer(self.stamp, more, NEVER)
            self.ticket = _longer(self.ticket, more, NO_TICKET)
            self.writer = _longer(self.writer, more, NO_TICKET)

    def _assign(self, slot: int, state: SlotState, expert: int, stamp: int) -> int:
        self._last_ticket += 1
        self._set(slot, state, expert, stamp, self._last_ticket)
        return self._last_ticket

    def _set(self, slot: int, state: SlotState, expert: int, stamp: int, ticket: int) -> None:
        self.state[slot] = state
        self.expert[slot] = expert
        self.stamp[slot] = stamp
        self.ticket[slot] = ticket


def _longer(array: NDArray[Any], more: int, value: int) -> NDArray[Any]:
    return np.concatenate([array, np.full(more, value, array.dtype)])
