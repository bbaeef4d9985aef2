"""Which other program took more of the card just now."""

from collections import deque
from collections.abc import Iterator, Sequence

from stratadesk.engine.vram.readings import Growth, ProgramUse
from stratadesk.units import MIB

WINDOW_S = 30.0
"""How long ago "just now" reaches."""
LEAST_BYTES = 32 * MIB
"""Growth below this is noise."""

Key = tuple[int, str | None]
"""A process id is used again by another program, so the name belongs to it."""


class GrowthTracker:
    """Compares each list of programs with those of the last 30 seconds.

    A program that an earlier list does not have held nothing then; one whose figure was not
    known then is not compared with it. This process and programs without a name are left out.
    """

    def __init__(self, own_pid: int, window_s: float = WINDOW_S) -> None:
        self._own_pid = own_pid
        self._window_s = window_s
        self._lists: deque[tuple[float, dict[Key, int | None]]] = deque()

    def note(self, at: float, programs: Sequence[ProgramUse]) -> Growth | None:
        """Add the list read at `at` seconds; return the program that grew most, if one did."""
        self._forget(at)
        found = max(self._grown(programs), key=lambda growth: growth.n_bytes, default=None)
        self._lists.append((at, {(use.pid, use.name): use.dedicated for use in programs}))
        return found

    def _forget(self, at: float) -> None:
        while self._lists and not 0 <= at - self._lists[0][0] <= self._window_s:
            self._lists.popleft()

    def _grown(self, programs: Sequence[ProgramUse]) -> Iterator[Growth]:
        for use in programs:
            least = self._least((use.pid, use.name))
            if use.name is None or use.pid == self._own_pid or None in (least, use.dedicated):
                continue
            grown = (use.dedicated or 0) - (least or 0)
            if grown >= LEAST_BYTES:
                yield Growth(use.name, use.pid, grown)

    def _least(self, key: Key) -> int | None:
        """The smallest known figure of a program within the window; None without any."""
        figures = (programs.get(key, 0) for _, programs in self._lists)
        return min((figure for figure in figures if figure is not None), default=None)
