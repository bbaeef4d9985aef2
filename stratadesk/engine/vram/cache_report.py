"""What the expert cache of a loaded model holds and does, told twice a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stratadesk.engine.card_events import CacheSample
from stratadesk.engine.vram.cache_counters import CacheCounters
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.slot_states import SlotState

if TYPE_CHECKING:
    from stratadesk.engine.vram.expert_cache import ExpertCache
    from stratadesk.engine.vram.host_memory import HostMemory

INTERVAL_S = 0.5
"""Seconds between two samples while the phase stays the same."""

ANSWERING = frozenset({VramState.PROMPT, VramState.DECODING})


class CacheReporter:
    """Takes a sample of `cache` when one is due, and whenever `state` has changed.

    The first counts of an answer are due at once: a short one would be over before the next.
    `experts` is the number of experts of all layers, `tiers` where on the host they are. While a
    prompt is read nothing is counted over the link: a prompt reads experts where they lie.
    """

    def __init__(
        self,
        cache: ExpertCache,
        experts: int,
        tiers: HostMemory,
        state: Callable[[], VramState],
        clock: Callable[[], float],
    ) -> None:
        self._cache = cache
        self._experts = experts
        self._tiers = tiers
        self._state = state
        self._clock = clock
        self._told_state = VramState.EMPTY
        self._told_at = float("-inf")
        self._told = self._answer = cache.counters

    def take_if_due(self) -> CacheSample | None:
        """Return a sample, or None when the last one is young and the phase the same."""
        state, now = self._state(), self._clock()
        changed = state is not self._told_state
        counters = self._cache.counters
        due = changed or now - self._told_at >= INTERVAL_S or self._are_first(counters)
        if not due:
            return None
        if state in ANSWERING and self._told_state not in ANSWERING:
            self._answer = counters
        sample = self._sample(counters, now)
        self._told, self._told_at, self._told_state = counters, now, state
        return sample

    def _are_first(self, counters: CacheCounters) -> bool:
        """Whether experts were asked for in this answer, and none when it was last told."""
        if self._told_state is not VramState.DECODING:
            return False
        told, now = self._told - self._answer, counters - self._answer
        return told.hits + told.misses == 0 < now.hits + now.misses

    def _sample(self, counters: CacheCounters, now: float) -> CacheSample:
        states, tiers = self._cache.states(), self._tiers
        window, answer = counters - self._told, counters - self._answer
        return CacheSample(
            at=now,
            slots=self._cache.slots,
            holding=states[SlotState.HOLDING],
            filling=states[SlotState.FILLING],
            empty=states[SlotState.EMPTY],
            lent=states[SlotState.LENT],
            reserved=states[SlotState.RESERVED],
            window_s=now - self._told_at if self._told_at > 0 else 0.0,
            window_hits=window.hits,
            window_misses=window.misses,
            answer_hits=answer.hits,
            answer_misses=answer.misses,
            refilled=answer.refilled,
            pinned=tiers.pinned_experts,
            pinned_bytes=tiers.pinned,
            pageable=self._experts - tiers.pinned_experts,
            pageable_bytes=tiers.pageable,
            link_bytes=self._crossed(window),
        )

    def _crossed(self, window: CacheCounters) -> int | None:
        if VramState.PROMPT in (self._told_state, self._state()):
            return None
        return window.bytes_filled + window.bytes_refilled + window.bytes_streamed
