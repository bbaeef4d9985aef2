"""Watching a real card whose model lies wholly on it: free memory, and whose every byte is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratadesk.engine.card_control import RESERVE_STEP
from stratadesk.engine.card_events import CacheSample, CardSettings, ReservePreviewed
from stratadesk.engine.events import ReserveApplied
from stratadesk.engine.memory_told import MemoryTold
from stratadesk.engine.tensor_groups import TensorGroups
from stratadesk.engine.vram.ledger import CardFigures, Ledger, LedgerLine, make_ledger
from stratadesk.engine.vram.live_reader import card_reader
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.engine.vram.probe import Probe, VramProbe
from stratadesk.errors import UsageError
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.cuda_loading import CardContents
    from stratadesk.engine.cuda_model import CudaModel
    from stratadesk.engine.vram.readings import MemoryReading
    from stratadesk.engine.vram.states import MemoryStatus

HEAD, EXPERTS = "head", "experts"
ALL_HERE = "all of the model stays on the card"


class CudaWatch:
    """Samples the card of `model`, and tells of it; called between two steps only.

    All experts lie on the card, so that nothing can be given back: a reserve is what warnings are
    measured by, and no more of it can be had than is free. `probe` stands in for the card's own
    in tests.
    """

    def __init__(
        self,
        model: CudaModel,
        emit: Callable[[Any], None],
        *,
        probe: VramProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._contents = model.contents
        self._emit = emit
        self._clock = clock
        contents = self._contents
        self._parts = parts_of(contents)
        self._others: int | None = None
        device = contents.device
        self._probe = probe or Probe(
            card_reader(lambda: (device.free(), device.total), device.pci_bus_id),
            contents.reserve,
            clock=clock,
        )
        self._told_memory = MemoryTold(emit)
        self._told_settings: CardSettings | None = None

    def after_loading(self) -> None:
        """Tell where everything lies."""
        status = self._probe.take_if_due() or self._probe.status()
        contents, ledger = self._contents, self._ledger(status)
        if ledger is not None:
            head = ledger.of(HEAD)
            self._emit(
                VramPhase(
                    state=VramState.READY,
                    at=self._clock(),
                    layout=None,
                    bytes_lent=0,
                    slots_lent=0,
                    head=HeadPlace.IN,
                    head_bytes=head,
                    return_s=0.0,
                    arena_end=contents.arena.end,
                    ledger=ledger,
                )
            )
        self._tell(status)
        self._tell_settings(status)
        if contents.experts:
            self._emit(_all_held(contents.experts, self._clock()))

    def seconds_left(self) -> float | None:
        """Seconds until the next sample is due; None when no more will come."""
        return self._probe.seconds_left()

    def attend(self) -> None:
        """Take a sample if one is due, and tell it.

        Raises DeviceLostError when the card has been lost: sampling may be the first to notice.
        """
        status = self._probe.take_if_due()
        LOSS.check()
        if status is not None:
            self._tell(status)
            self._tell_settings(status)

    def set_reserve(self, reserve: int) -> None:
        """Warn from now on when less than `reserve` bytes are free, or less than can be had."""
        status = self._probe.status()
        kept = min(reserve, max(self._most(status), self._probe.reserve))
        if isinstance(self._probe, Probe):
            self._probe.reserve = kept
        self._emit(
            ReserveApplied(
                reserve=reserve,
                free=status.headroom or 0,
                slots=self._contents.experts,
                done=True,
                limitation=ALL_HERE if kept < reserve else "",
            )
        )
        self._tell_settings(status)

    def preview_reserve(self, reserve: int) -> None:
        """Tell that a reserve of `reserve` bytes would change nothing but the warnings."""
        status, experts = self._probe.status(), self._contents.experts
        free = status.headroom or 0
        self._emit(
            ReservePreviewed(
                before=self._probe.reserve,
                reserve=reserve,
                slots_before=experts,
                slots=experts,
                free=free,
                waits=False,
                limitation=ALL_HERE if reserve > free else "",
            )
        )

    def set_alias(self, alias: HeadAlias) -> None:
        """Raise UsageError: prompts borrow nothing here."""
        raise UsageError(
            "Prompts cannot borrow the head's memory on a card yet: they go through the decode "
            "windows.",
            "Use --device host to see it on a simulated card.",
        )

    def close(self) -> None:
        """Let go of the drivers."""
        self._probe.close()

    def _most(self, status: MemoryStatus) -> int:
        """The largest reserve there is room for now, in whole MiB."""
        return (status.headroom or 0) // MIB * MIB

    def _tell_settings(self, status: MemoryStatus) -> None:
        """Tell what is set, when it has changed."""
        reserve = self._probe.reserve
        settings = CardSettings(
            alias=HeadAlias.OFF,
            alias_next=HeadAlias.OFF,
            reserve=reserve,
            step=RESERVE_STEP,
            step_slots=0,
            most=max(self._most(status), reserve),
        )
        if settings != self._told_settings:
            self._told_settings = settings
            self._emit(settings)

    def _tell(self, status: MemoryStatus) -> None:
        self._told_memory.tell(status, self._ledger(status))

    def _ledger(self, status: MemoryStatus) -> Ledger | None:
        """Whose the card's bytes are; None where no source tells how many are free."""
        reading = status.reading
        figures = reading.figures if reading is not None else ()
        figure = next((each for each in figures if each.free is not None), None)
        if reading is None or figure is None or figure.free is None:
            return None
        listed = others_of(reading)
        self._others = self._others if listed is None else listed
        own, end = reading.own_dedicated, self._contents.arena.end
        card = CardFigures(
            total=figure.total or self._contents.device.total,
            free=figure.free,
            others=self._others,
            outside=max(0, own - end) if own is not None else None,
        )
        return make_ledger(card, self._parts, self._probe.reserve)


def parts_of(contents: CardContents) -> tuple[LedgerLine, ...]:
    """Divide up the arena of a loaded model; the lines add up to it."""
    layout, placed = contents.layout, contents.loader.placed
    groups = TensorGroups(placed, 0)
    sizes = {HEAD: 0, EXPERTS: 0}
    for name, n_bytes in placed.items():
        group = groups.group_of(name)
        if group in sizes:
            sizes[group] += n_bytes
    dense = layout.weights - sum(sizes.values())
    return (
        LedgerLine("weights", dense),
        LedgerLine("KV and state", layout.resident),
        LedgerLine("scratch", layout.scratch),
        LedgerLine(HEAD, sizes[HEAD]),
        LedgerLine(EXPERTS, sizes[EXPERTS]),
        LedgerLine("padding", contents.arena.end - layout.total),
    )


def others_of(reading: MemoryReading) -> int | None:
    """What other programs hold, in bytes; None where that is not told of each of them."""
    listed = reading.programs.programs if reading.programs is not None else None
    if listed is None:
        return None
    held = [use.dedicated for use in listed if use.pid != os.getpid()]
    return None if None in held else sum(filter(None, held))


def _all_held(experts: int, at: float) -> CacheSample:
    """Every expert has a slot and stays in it; whether it was used is not counted."""
    return CacheSample(
        at=at,
        slots=experts,
        holding=experts,
        filling=0,
        empty=0,
        lent=0,
        reserved=0,
        window_s=0.0,
        window_hits=0,
        window_misses=0,
        answer_hits=0,
        answer_misses=0,
        refilled=0,
        pinned=0,
        pinned_bytes=0,
        pageable=0,
        pageable_bytes=0,
        link_bytes=None,
    )
