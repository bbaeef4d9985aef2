"""When the slot region may grow and when it must shrink while the engine runs.

Pressure acts at once. Growth waits until the room has been there for a while, and for some time
after the last change, so that two programs do not take turns.
"""

from stratadesk.engine.vram.give_back import shortage
from stratadesk.engine.vram.states import MemoryState, MemoryStatus

GROW_AFTER_S = 10.0
"""How long a block more than the reserve must have been free, in every sample."""
COOLDOWN_S = 30.0
"""How long after a change, of either kind, nothing grows."""


class CapacityRule:
    """Advises on whole blocks of `block_bytes`; whoever acts on it calls `changed`."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._changed_at: float | None = None
        self._room_since: float | None = None
        self._room = 0

    def changed(self, now: float) -> None:
        """The slot region has changed its size, for whatever reason; older readings are void."""
        self._changed_at = now
        self._room_since = None

    def advise(self, status: MemoryStatus) -> int:
        """Bytes to take (above 0), to give back (below 0), or 0 to leave all as it is.

        Call it once for each new reading. A lost or unknown figure advises nothing.
        """
        reading = status.reading
        if reading is None or status.state is MemoryState.LOST or self._is_old(reading.at):
            return self._hold()
        missing = shortage(reading, status.reserve)
        if missing is None:
            return self._hold()
        if missing > 0:
            self._room_since = None
            return self._blocks(-missing)
        return self._growth(reading.at, (reading.headroom or 0) - status.reserve)

    def _is_old(self, at: float) -> bool:
        return self._changed_at is not None and at <= self._changed_at

    def _hold(self) -> int:
        self._room_since = None
        return 0

    def _blocks(self, n_bytes: int) -> int:
        """Round down to whole blocks: growth to fewer, what is given back to more."""
        return n_bytes // self._block_bytes * self._block_bytes

    def _growth(self, at: float, room: int) -> int:
        """The blocks that the smallest room of the last samples would have allowed."""
        if room < self._block_bytes:
            return self._hold()
        if self._room_since is None or at < self._room_since:
            self._room_since, self._room = at, room
        self._room = min(self._room, room)
        cooled = self._changed_at is None or at - self._changed_at >= COOLDOWN_S
        sustained = at - self._room_since >= GROW_AFTER_S
        return self._blocks(self._room) if cooled and sustained else 0
