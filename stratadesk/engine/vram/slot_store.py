"""Experts' bytes into slots, with a check that they arrived.

A background refill is always checked: its copy overlaps with everything else. A fill on demand
is checked when the store is told to. With both checked, no slot enters the residency map whose
bytes were not compared with the host's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.checksum import checksum
from stratadesk.engine.vram.geometry import Span
from stratadesk.errors import StrataDeskError

Bytes = npt.NDArray[np.uint8]

COPY_TRIES = 2
"""How often an expert is copied before giving up."""


class CopyError(StrataDeskError):
    """An expert's bytes did not arrive in its slot."""

    title = "Expert copy failed"


@dataclass(frozen=True, slots=True)
class ExpertPart:
    """One tensor of an expert: `data`, uint8 [n], goes to `offset` bytes behind a slot's start."""

    offset: int
    data: Bytes


class ExpertSource(Protocol):
    """The host's copy of all experts."""

    def parts(self, layer: int, expert: int) -> Sequence[ExpertPart]:
        """Return the tensors of an expert; OSError when they cannot be read."""


class SlotStore:
    """Writes experts of `source` into the slots of an arena that the processor can address.

    `check_fills` compares every fill on demand as well, not only refills. Any thread may copy
    into a slot that the cache has given it for that.
    """

    def __init__(self, arena: Arena, source: ExpertSource, *, check_fills: bool = False) -> None:
        self._arena = arena
        self._source = source
        self._check_fills = check_fills

    def fill(self, slot: int, layer: int, expert: int) -> None:
        """Copy an expert that a decode step waits for.

        Raises:
            CopyError: when it cannot be read or, if fills are checked, does not arrive right.
        """
        self._copy(slot, layer, expert, check=self._check_fills)

    def refill(self, slot: int, layer: int, expert: int) -> None:
        """Copy an expert in the background, and check it.

        Raises:
            CopyError: when it cannot be read or does not arrive right.
        """
        self._copy(slot, layer, expert, check=True)

    def verify(self, slot: int, layer: int, expert: int) -> None:
        """Check before a use that a slot holds an expert.

        Raises:
            CopyError: when it holds other bytes.
            OSError: when the expert cannot be read.
        """
        trouble = self._difference(slot, layer, expert)
        if trouble:
            raise CopyError(
                f"Expert {expert} of layer {layer} in slot {slot} {trouble}.",
                "Load the model again; if it happens again, check the memory.",
            )

    def _copy(self, slot: int, layer: int, expert: int, *, check: bool) -> None:
        trouble = self._try(slot, layer, expert, check=check)
        for _ in range(COPY_TRIES - 1):
            if trouble:
                trouble = self._try(slot, layer, expert, check=check)
        if trouble:
            raise CopyError(
                f"Expert {expert} of layer {layer} did not arrive in slot {slot} in {COPY_TRIES} "
                f"tries: it {trouble}.",
                "Try again; if it happens again, check the model file and the memory.",
            )

    def _try(self, slot: int, layer: int, expert: int, *, check: bool) -> str:
        """Copy once; what went wrong in words, or nothing."""
        try:
            for part in self._source.parts(layer, expert):
                np.copyto(self._view(slot, part), part.data)
            return self._difference(slot, layer, expert) if check else ""
        except OSError as error:
            return f"could not be read ({error})"

    def _difference(self, slot: int, layer: int, expert: int) -> str:
        """How the slot differs from the source, in words; OSError when that cannot be read."""
        for part in self._source.parts(layer, expert):
            found, right = checksum(self._view(slot, part)), checksum(part.data)
            if found != right:
                return f"has checksum {found:016x} instead of {right:016x} at byte {part.offset}"
        return ""

    def _view(self, slot: int, part: ExpertPart) -> Bytes:
        start = self._arena.geometry.slot(slot).start + part.offset
        return self._arena.view(Span(start, start + part.data.size))
