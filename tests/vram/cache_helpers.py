"""Small caches for tests, and short words for what is done with them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.slot_states import (
    NO_SLOT,
    Placement,
    PlacementKind,
    Reservation,
    SlotState,
)


def make(
    slots: int, *, layers: int = 1, experts: int = 8, used: int = 1, below: int | None = 0
) -> ExpertCache:
    """A cache over `layers` layers whose slots have 256, 512, 768 … bytes."""
    geometry = ArenaGeometry(0, 0, [256 * (layer + 1) for layer in range(layers)])
    return ExpertCache(geometry, experts, used, slots, filter_below=below)


def use(cache: ExpertCache, *experts: int, layer: int = 0) -> tuple[Placement, ...]:
    """One decode step of one layer, its fills completed; the cache is checked after it."""
    cache.begin_step()
    placements = cache.resolve(layer, experts)
    for placement in placements:
        if placement.kind is PlacementKind.FILL:
            assert cache.filled(placement)
    cache.check()
    return placements


def kinds(placements: Sequence[Placement]) -> list[PlacementKind]:
    return [placement.kind for placement in placements]


def resident(cache: ExpertCache, layer: int = 0) -> set[int]:
    return set(np.flatnonzero(cache.residency[layer] != NO_SLOT).tolist())


def count(cache: ExpertCache, state: SlotState) -> int:
    return cache.states()[state]


def one_hot(cache: ExpertCache, layer: int, **uses: int) -> NDArray[np.int64]:
    counts = np.zeros(cache.residency.shape, np.int64)
    for expert, times in uses.items():
        counts[layer, int(expert.removeprefix("e"))] = times
    return counts


def refill(cache: ExpertCache, reservation: Reservation) -> bool:
    return cache.begin_copy(reservation) and cache.commit(reservation)
