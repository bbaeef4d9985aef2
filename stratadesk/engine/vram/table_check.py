"""The rules that every slot table obeys after every change."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stratadesk.engine.vram.slot_states import NO_EXPERT, NO_SLOT, NO_TICKET, SlotState
from stratadesk.engine.vram.slot_table import SlotTable

_ON_DEMAND = (SlotState.HOLDING, SlotState.FILLING)


def violations(table: SlotTable, step: int) -> list[str]:
    """Return one sentence with numbers for every rule that `table` breaks at `step`."""
    rules = (_ranges, _experts, _residency, _coming, _copies)
    found = [sentence for rule in rules for sentence in rule(table)]
    late = np.flatnonzero(table.stamp > step)
    return [*found, *(f"slot {s} is stamped {table.stamp[s]} in step {step}" for s in late)]


def _ranges(table: SlotTable) -> Iterator[str]:
    """LENT is exactly the beginning, UNMAPPED exactly the end, and all slots have a state."""
    for state, first, end in (
        (SlotState.LENT, 0, table.lent),
        (SlotState.UNMAPPED, table.mapped, len(table.state)),
    ):
        slots = table.slots_in(state)
        if slots != list(range(first, end)):
            yield f"slots {slots} are {state.name} instead of {first} to {end - 1}"
    total = sum(table.counts().values())
    if total != len(table.state):
        yield f"{total} states for {len(table.state)} slots: {table.counts()}"


def _experts(table: SlotTable) -> Iterator[str]:
    """A slot is for an expert exactly in three states, and no expert is in two slots."""
    assigned = table.is_in(*_ON_DEMAND, SlotState.RESERVED)
    for slot in np.flatnonzero(assigned != (table.expert != NO_EXPERT)):
        yield f"slot {slot} is {_described(table, slot)}"
    for states in (_ON_DEMAND, (SlotState.RESERVED,)):
        slots = np.asarray(table.slots_in(*states), np.int64)
        keys = slots % table.layers * table.residency.shape[1] + table.expert[slots]
        found, times = np.unique(keys, return_counts=True)
        for key in found[times > 1]:
            twins = slots[keys == key].tolist()
            yield f"slots {twins} are all {_described(table, twins[0])}"


def _residency(table: SlotTable) -> Iterator[str]:
    """The map names each HOLDING slot by its layer and expert, and no other slot."""
    layers, experts = np.nonzero(table.residency != NO_SLOT)
    slots = table.residency[layers, experts]
    right = (
        (table.state[slots] == SlotState.HOLDING)
        & (table.expert[slots] == experts)
        & (slots % table.layers == layers)
    )
    for layer, expert, slot in np.stack([layers, experts, slots], axis=1)[~right]:
        yield (
            f"the map names slot {slot} for expert {expert} of layer {layer}, "
            f"but it is {_described(table, slot)} of layer {slot % table.layers}"
        )
    holding = table.counts()[SlotState.HOLDING]
    if len(slots) != holding:
        yield f"the map names {len(slots)} slots, but {holding} are HOLDING"


def _coming(table: SlotTable) -> Iterator[str]:
    """Experts are marked as coming exactly while a slot is FILLING for them."""
    filling = table.slots_in(SlotState.FILLING)
    expected = {(slot % table.layers, int(table.expert[slot])) for slot in filling}
    marked = {(int(layer), int(expert)) for layer, expert in np.argwhere(table.coming)}
    if marked != expected:
        yield f"experts (layer, expert) {marked} are marked as coming, but {expected} are FILLING"


def _copies(table: SlotTable) -> Iterator[str]:
    """What is FILLING is written by its own copy, what is HOLDING by none."""
    none = table.writer == NO_TICKET
    own = table.writer == table.ticket
    for state, right in (
        (SlotState.FILLING, own),
        (SlotState.HOLDING, none),
        (SlotState.RESERVED, own | none),
    ):
        for slot in np.flatnonzero((table.state == state) & ~right):
            yield (
                f"slot {slot} is {_described(table, slot)} by copy {table.ticket[slot]}, "
                f"but copy {table.writer[slot]} is writing there"
            )


def _described(table: SlotTable, slot: int | np.integer[Any]) -> str:
    return f"{SlotState(table.state[slot]).name} with expert {table.expert[slot]}"
