"""Changing a loaded model's share of the card while it runs: reserve, alias, and pressure."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stratadesk.engine.events import ReserveApplied, VramSample
from stratadesk.engine.vram.capacity_rule import CapacityRule
from stratadesk.engine.vram.give_back import keep_reserve
from stratadesk.engine.vram.live_reader import simulated_reader
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.engine.vram.probe import Probe, VramProbe
from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.model import LoadedModel
    from stratadesk.engine.vram.resizing import Resize

Emit = Callable[[ReserveApplied | VramSample], None]

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

    def seconds_left(self) -> float | None:
        """Seconds until the next sample is due; None when no more will come."""
        return self._probe.seconds_left()

    def after_loading(self) -> None:
        """Read free memory again and give slots back until the reserve is really free (B2)."""
        done = keep_reserve(self._read, self._model.memory.machine.reserve, self._release)
        if done.slots or not done.reached:
            log.warning("%s", done.sentence)
            self._changed()

    def attend(self) -> None:
        """Take a sample if one is due, tell it, and act on pressure or on lasting room."""
        status = self._probe.take_if_due()
        if status is None:
            return
        self._emit(VramSample(status))
        advice = self._rule.advise(status)
        if advice:
            urgent = status.state is MemoryState.ZERO
            self._told(self._model.resize_by(advice, urgent=urgent), _reason(status))

    def set_reserve(self, reserve: int) -> None:
        """Keep `reserve` bytes free from the next safe point on, and tell what was reached."""
        self._probe_reserve(reserve)
        self._told(self._model.set_reserve(reserve), "")

    def set_alias(self, alias: HeadAlias) -> None:
        """Let prompts take the head's bytes or not, from the next prompt on.

        Raises:
            UsageError: the model's head is its embedding, which is never lent.
        """
        self._model.set_alias(alias)

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
        self._model.resize_by(-n_bytes, urgent=True)
        return before - self._model.memory.cache.slots

    def _told(self, resize: Resize, reason: str) -> None:
        self._changed()
        memory = self._model.memory
        event = ReserveApplied(
            reserve=memory.machine.reserve,
            free=memory.card.free,
            slots=memory.cache.slots,
            done=resize.done,
            limitation=resize.limitation,
            reason=reason,
        )
        log.info("reserve %.0f MiB: %s", event.reserve / MIB, event)
        self._emit(event)

    def _changed(self) -> None:
        self._rule.changed(self._clock())

    def _probe_reserve(self, reserve: int) -> None:
        if isinstance(self._probe, Probe):
            self._probe.reserve = reserve


def _reason(status: MemoryStatus) -> str:
    if status.grew is not None:
        return f"{status.grew.name} took {status.grew.n_bytes / MIB:,.0f} MiB"
    return "other programs changed what is free"
