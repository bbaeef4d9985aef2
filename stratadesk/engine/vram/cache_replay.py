"""What an expert cache of a given size would have found of a recorded routing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.vram.cache_counters import CacheCounters
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.slot_states import PlacementKind


def replay_routing(
    layers: Sequence[NDArray[np.int32]], experts: int, slots: int, *, plain_lru: bool = False
) -> CacheCounters:
    """Send the tokens of `layers` one by one through an empty `ExpertCache` of `slots` slots.

    `layers` hold the chosen ones of `experts` experts of each layer, [tokens, used]. Each token is
    a decode step, and each of its experts in each layer counts as one hit or one miss; a miss is
    copied in at once if the cache gives it a slot. With `plain_lru` the least recently used expert
    always gives way; else a layer with few slots goes by rates of use, as decoding does.
    """
    used = max(routed.shape[1] for routed in layers)
    geometry = ArenaGeometry(0, 0, [1] * len(layers))
    cache = ExpertCache(geometry, experts, used, slots, filter_below=0 if plain_lru else None)
    for chosen in zip(*layers, strict=True):
        cache.begin_step()
        for layer, found in enumerate(chosen):
            for place in cache.resolve(layer, sorted(found.tolist())):
                if place.kind is PlacementKind.FILL:
                    cache.filled(place)
    return cache.counters
