"""Where the output head comes back from after a prompt has overwritten it."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.checksum import checksum
from stratadesk.engine.vram.geometry import Span

Bytes = npt.NDArray[np.uint8]


class HeadStore(Protocol):
    """What the phase machine needs: bring the head back, and tell what lies in its place."""

    @property
    def checksum(self) -> int:
        """The checksum of the right bytes."""

    def restore(self, span: Span) -> None:
        """Copy the head to the start of `span`; OSError or a StrataDeskError if that fails."""

    def measure(self, span: Span) -> int:
        """The checksum of the head's bytes as they lie in `span` now."""


class HeadSource(Protocol):
    """The host's copy of the head."""

    @property
    def n_bytes(self) -> int:
        """Its size."""

    @property
    def checksum(self) -> int:
        """Its checksum, computed when the model was loaded."""

    def read_into(self, view: Bytes) -> None:
        """Write all bytes to `view`, uint8 [n_bytes]; OSError if they cannot be read."""


class HeadInMemory:
    """A head whose bytes, uint8 [n], lie in memory or in a mapped file, none of them changing.

    `check` raises a StrataDeskError when they can no longer be read.
    """

    def __init__(self, data: Bytes, check: Callable[[], None] = lambda: None) -> None:
        self._data = data
        self._check = check
        self.checksum = checksum(data)

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self._data.size

    def read_into(self, view: Bytes) -> None:
        """Copy all bytes to `view`, uint8 [n]; what the check raises goes through."""
        self._check()
        np.copyto(view, self._data)


class HostHeadStore:
    """A head store for an arena that the processor can address."""

    def __init__(self, arena: Arena, source: HeadSource) -> None:
        self._arena = arena
        self._source = source

    @property
    def checksum(self) -> int:
        """The checksum of the right bytes."""
        return self._source.checksum

    def restore(self, span: Span) -> None:
        """Copy the head to the start of `span`; what its source raises goes through."""
        self._source.read_into(self._bytes(span))

    def measure(self, span: Span) -> int:
        """The checksum of the head's bytes as they lie in `span` now."""
        return checksum(self._bytes(span))

    def _bytes(self, span: Span) -> Bytes:
        return self._arena.view(Span(span.start, span.start + self._source.n_bytes))
