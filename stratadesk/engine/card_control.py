"""Changing a loaded model's share of the card while it runs: reserve, alias, and pressure.

What there is to see of it is told from here too: free memory, slots, and what is set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stratadesk.engine.card_events import CacheSample, CardSettings, ReservePreviewed
from stratadesk.engine.events import ReserveApplied, VramSample
from stratadesk.engine.memory_told import MemoryTold
from stratadesk.engine.vram.cache_report import CacheReporter
from stratadesk.engine.vram.capacity_rule import CapacityRule
from stratadesk.engine.vram.give_back import keep_reserve
from stratadesk.engine.vram.live_reader import simulated_reader
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.engine.vram.probe import Probe, VramProbe
from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.errors import StrataDeskError
from stratadesk.units import GIB, MIB

if TYPE_CHECKING:
    from stratadesk.engine.model import LoadedModel
    from stratadesk.engine.vram.resizing import Resize

Emit = Callable[[ReserveApplied | ReservePreviewed | VramSample | CacheSample | CardSettings], None]

RESERVE_STEP = 64 * MIB
"""By how much one key changes the reserve."""
SMALL_CARD, SMALL_STEPS = 1 * GIB, 128
"""On a smaller card, which is a simulated one, a step is this part of it."""

MORE_FREE = "more was free than the reserve"

log = logging.getLogger(__name__)


class CardControl:
    """Watches the card of `model` and moves the arena's end; called between two steps only.

    `probe` stands in for the card's own in tests and replays.
    """

    def __init__(
        self,
        model: LoadedModel,
        emit: Emit,
        *,
        probe: VramProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._emit = emit
        self._clock = clock
        card, machine = model.memory.card, model.memory.machine
        self._probe = probe or Probe(
            simulated_reader(lambda: (card.free, card.total)), machine.reserve, clock=clock
        )
        self._rule = CapacityRule(model.memory.plan.settings.block_bytes)
        self._report = _reporter(model, clock)
        self._told_settings: CardSettings | None = None
        self._last_told: ReserveApplied | None = None
        self._told_memory = MemoryTold(emit)
        self._raised_from: int | None = None
        self._waits = False
        """Whether the last change had to wait for a safe point, which may have come since."""

    def seconds_left(self) -> float | None:
        """Seconds until the next sample is due; None when no more will come."""
        return self._probe.seconds_left()

    def after_loading(self) -> None:
        """Read free memory again and give slots back until the reserve is really free (B2)."""
        done = keep_reserve(self._read, self._model.memory.machine.reserve, self._release)
        if done.slots or not done.reached:
            log.warning("%s", done.sentence)
            self._changed()
        self._tell_memory(self._probe.status())
        self._tell_cache()
        self._tell_settings()

    def attend(self) -> None:
        """Take a sample if one is due, tell it, and act on pressure or on lasting room."""
        status = self._probe.take_if_due()
        if status is not None:
            if status.reserve_kept:
                self._raised_from = None
            self._tell_memory(status)
            if self._model.memory.machine.state is not VramState.FAILED:
                self._act(status)
        if self._tell_cache():
            self._tell_settings()

    def _act(self, status: MemoryStatus) -> None:
        """Answer pressure or lasting room, unless that would change nothing."""
        advice = self._rule.advise(status)
        if not advice:
            return
        idle = self._without_effect(advice)
        own = advice < 0 and self._is_own_shortage(status)
        if idle is not None:
            if advice < 0 and not own:
                self._tell_applied(idle, _reason(status))
            return
        slots = self._model.memory.cache.slots
        resize = self._resize_by(advice, urgent=status.state is MemoryState.ZERO)
        # What came of the user's own change was told, or is by the resize that waited for it; and
        # a block more without a slot more is nothing to anybody.
        brought_nothing = advice > 0 and resize.done and resize.slots == slots
        if brought_nothing or own:
            self._changed()
            self._tell_settings()
        else:
            self._told(resize, MORE_FREE if advice > 0 else _reason(status))

    def _without_effect(self, n_bytes: int) -> Resize | None:
        """What moving the arena's end by `n_bytes` would come to, if that moved nothing.

        None where it would, and for giving back while an earlier change waits: that may be one to
        grow, whose place it takes.
        """
        memory = self._model.memory
        resize, _ = memory.machine.preview(memory.arena.end + n_bytes)
        takes_place = self._waits and n_bytes < 0
        if takes_place or resize.reached != memory.arena.end:
            return None
        return replace(resize, done=True)

    def _resize_by(self, n_bytes: int, *, urgent: bool) -> Resize:
        resize = self._model.resize_by(n_bytes, urgent=urgent)
        self._waits = not resize.done
        return resize

    def _require_certain(self) -> None:
        machine = self._model.memory.machine
        if machine.state is VramState.FAILED:
            raise StrataDeskError(
                f"The card's memory cannot be shared out anew: {machine.why}",
                "Load the model again.",
            )

    def _reachable(self, end: int) -> int:
        resize, _ = self._model.memory.machine.preview(end)
        return resize.reached

    def set_reserve(self, reserve: int) -> None:
        """Keep `reserve` bytes free from the next safe point on, and tell what was reached.

        Of a raised reserve only what giving back slots can free is kept from then on: a reserve
        that nothing can free would be an alarm that nothing can end. One that is lowered stays
        what was asked for, however much other programs hold.

        Raises:
            StrataDeskError: what the card's memory holds is not certain.
        """
        self._require_certain()
        before, most = self._model.memory.machine.reserve, self._most()
        kept = reserve if most is None else min(reserve, max(most, before))
        if kept > before:
            self._raised_from = self._probe.status().headroom
        self._probe_reserve(kept)
        resize = self._model.set_reserve(kept, reserve)
        self._waits = not resize.done
        self._told(resize, "", asked=reserve)

    def preview_reserve(self, reserve: int) -> None:
        """Tell what keeping `reserve` bytes free would do; raises as `set_reserve`."""
        self._require_certain()
        memory, card = self._model.memory, self._model.memory.card
        resize, waits = memory.machine.preview(memory.arena.end + card.free - reserve)
        self._emit(
            ReservePreviewed(
                before=memory.machine.reserve,
                reserve=reserve,
                slots_before=memory.cache.slots,
                slots=resize.slots,
                free=card.free + memory.arena.end - resize.reached,
                waits=waits,
                limitation=resize.limitation,
            )
        )

    def set_alias(self, alias: HeadAlias) -> None:
        """Let prompts take the head's bytes or not, from the next prompt on.

        Raises:
            UsageError: the model's head is its embedding, which is never lent.
        """
        self._model.set_alias(alias)
        self._tell_settings()

    def close(self) -> None:
        """Let go of the probe."""
        self._probe.close()

    def _read(self) -> MemoryReading:
        status = self._probe.take_if_due() or self._probe.status()
        card = self._model.memory.card
        reader = simulated_reader(lambda: (card.free, card.total))
        return status.reading or reader.read(self._clock())

    def _release(self, n_bytes: int) -> int:
        before = self._model.memory.cache.slots
        if self._without_effect(-n_bytes) is None:
            self._resize_by(-n_bytes, urgent=True)
        return before - self._model.memory.cache.slots

    def _is_own_shortage(self, status: MemoryStatus) -> bool:
        """Whether less is free than the reserve because that was raised, not because of others."""
        raised_from, headroom = self._raised_from, status.headroom
        if raised_from is None or headroom is None:
            return False
        return raised_from - headroom < status.reserve - raised_from

    def _told(self, resize: Resize, reason: str, asked: int | None = None) -> None:
        self._changed()
        self._tell_applied(resize, reason, asked)

    def _tell_applied(self, resize: Resize, reason: str, asked: int | None = None) -> None:
        memory = self._model.memory
        event = ReserveApplied(
            reserve=memory.machine.reserve if asked is None else asked,
            free=memory.card.free,
            slots=memory.cache.slots,
            done=resize.done,
            limitation=resize.limitation,
            reason=reason,
        )
        if not self._is_news(event):
            return
        self._last_told = event
        log.info("reserve %.0f MiB: %s", event.reserve / MIB, event)
        self._emit(event)
        self._tell_settings()

    def _is_news(self, event: ReserveApplied) -> bool:
        """Whether it is more than the last one said again: pressure is answered every sample."""
        last = self._last_told
        if last is None or not event.reason or not last.reason:
            return True
        stuck = event.done and event.slots == last.slots and bool(event.limitation)
        return event.done is not last.done or not (stuck or not event.done)

    def _tell_memory(self, status: MemoryStatus) -> None:
        self._told_memory.tell(status, self._model.memory.machine.ledger())

    def _tell_cache(self) -> bool:
        sample = self._report.take_if_due()
        if sample is not None:
            self._emit(sample)
        return sample is not None

    def _tell_settings(self) -> None:
        """Tell what is set, when it has changed."""
        settings = self._settings()
        if settings != self._told_settings:
            self._told_settings = settings
            self._emit(settings)

    def _settings(self) -> CardSettings:
        memory, machine = self._model.memory, self._model.memory.machine
        step = _step(memory.card.total, memory.plan.settings.block_bytes)
        higher, _ = machine.preview(memory.arena.end - step)
        return CardSettings(
            alias=machine.alias,
            alias_next=machine.alias_next,
            reserve=machine.reserve,
            step=step,
            step_slots=memory.cache.slots - higher.slots,
            most=self._most(),
        )

    def _most(self) -> int | None:
        """The largest reserve that can be kept, in the units in which reserves are chosen."""
        memory = self._model.memory
        if not memory.arena.elastic:
            return None
        most = memory.card.free + memory.arena.end - self._reachable(0)
        unit = MIB if memory.card.total >= SMALL_CARD else memory.plan.settings.block_bytes
        return most // unit * unit

    def _changed(self) -> None:
        self._rule.changed(self._clock())

    def _probe_reserve(self, reserve: int) -> None:
        if isinstance(self._probe, Probe):
            self._probe.reserve = reserve


def _step(card: int, block: int) -> int:
    """One step of the reserve: whole blocks on a small card, `RESERVE_STEP` on any other."""
    if card >= SMALL_CARD:
        return RESERVE_STEP
    return max(card // SMALL_STEPS // block, 1) * block


def _reporter(model: LoadedModel, clock: Callable[[], float]) -> CacheReporter:
    memory = model.memory
    mixtures = memory.plan.shape.experts(memory.plan.settings.mtp)
    experts = sum(mixture.experts for mixture in mixtures)
    state = memory.machine
    return CacheReporter(memory.cache, experts, memory.plan.host, lambda: state.state, clock)


def _reason(status: MemoryStatus) -> str:
    if status.grew is not None:
        return f"{status.grew.name} took {status.grew.n_bytes / MIB:,.0f} MiB"
    return "other programs took video memory"
