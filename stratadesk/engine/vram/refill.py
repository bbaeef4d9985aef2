"""Which experts come back into slots that a prompt had borrowed, and in which order."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stratadesk.engine.vram.slot_states import NEVER, NO_TICKET, Reservation, SlotState
from stratadesk.engine.vram.slot_table import SlotTable


class RoutingCounts:
    """How often the tokens of a prompt used each expert, int64 [layer, expert]."""

    def __init__(self, layers: int, experts: int) -> None:
        self._counts = np.zeros((layers, experts), np.int64)

    def add(self, layer: int, experts: ArrayLike) -> None:
        """Count routed experts of `layer`: integers of any shape, such as [T, K].

        Raises:
            ValueError: a number that is no expert.
        """
        total = self._counts.shape[1]
        found = np.bincount(np.ravel(experts), minlength=total)
        if len(found) > total:
            raise ValueError(f"expert {len(found) - 1} was routed to; there are {total}")
        self._counts[layer] += found

    def take(self) -> NDArray[np.int64]:
        """Return the counts and start again from 0."""
        counts, self._counts = self._counts, np.zeros_like(self._counts)
        return counts


def refill_order(
    counts: NDArray[np.int64], stamps: NDArray[np.int64], present: NDArray[np.bool_]
) -> list[int]:
    """Return the experts of one layer that should come back, the most wanted first.

    All arguments are indexed by expert. `counts` are the prompt's uses, `stamps` the step of the
    last use of experts that the loan put out (`NEVER` for others), and `present` says which have
    a slot or are to get one. First come those that the prompt used, most used first, then those
    that it only put out; latest use first among equals. Others do not come back.
    """
    order = np.lexsort((-stamps, -counts))
    wanted = ((counts > 0) | (stamps > NEVER)) & ~present
    return [int(expert) for expert in order[wanted[order]]]


def reserve_returning(
    table: SlotTable,
    end: int,
    counts: NDArray[np.int64],
    stamps: NDArray[np.int64],
    step: int,
) -> list[Reservation]:
    """Reserve EMPTY slots before `end` for the experts that should come back.

    `counts` and `stamps` are those of `refill_order`, per [layer, expert]. Returned in the order
    of copying: the most wanted expert of every layer, then the second of every layer, and so on.
    The most wanted get the highest slots: the next loan begins at slot 0 and may be smaller.
    """
    present = _present_or_reserved(table)
    ranked = []
    for layer in range(min(end, table.layers)):
        order = refill_order(counts[layer], stamps[layer], present[layer])
        free = _highest_first(table, layer, end)
        for rank, (expert, slot) in enumerate(zip(order, free, strict=False)):
            stamp = int(stamps[layer, expert]) or step
            ticket = table.reserve(slot, expert, stamp)
            ranked.append((rank, Reservation(layer, expert, slot, ticket)))
    return [reservation for _, reservation in sorted(ranked)]


def _present_or_reserved(table: SlotTable) -> NDArray[np.bool_]:
    present = table.present
    for slot in table.slots_in(SlotState.RESERVED):
        present[slot % table.layers, table.expert[slot]] = True
    return present


def _highest_first(table: SlotTable, layer: int, end: int) -> list[int]:
    """The slots of `layer` before `end` that are EMPTY and that nothing is writing into."""
    slots = np.arange(layer, end, table.layers)[::-1]
    free = (table.state[slots] == SlotState.EMPTY) & (table.writer[slots] == NO_TICKET)
    return [int(slot) for slot in slots[free]]
