"""Telling how much of a card is free, and in the log when that becomes short or is well again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stratadesk.engine.events import VramSample
from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.states import MemoryState, MemoryStatus
from stratadesk.engine.vram.wording import banner

log = logging.getLogger(__name__)


class MemoryTold:
    """Gives each sample to `emit`; a change of its state also goes to the log."""

    def __init__(self, emit: Callable[[VramSample], None]) -> None:
        self._emit = emit
        self._logged = MemoryState.OK

    def tell(self, status: MemoryStatus, ledger: Ledger | None) -> None:
        """Tell a sample with the card's books of the moment, None where there are none."""
        self._emit(VramSample(status, ledger))
        if status.state is not self._logged:
            self._logged = status.state
            said = banner(status)
            log.warning("video memory %s: %s", status.state, said.text if said else "all is well")
