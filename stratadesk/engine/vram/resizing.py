"""Growing and shrinking the arena's tail while a model is loaded.

Shrinking takes slots out of the map, waits until nothing touches them, then unmaps; growing maps,
then offers the new slots as EMPTY. What cannot be reached is a limitation in words, not an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.geometry import ArenaGeometry, aligned
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.slot_states import Reservation
from stratadesk.errors import StrataDeskError
from stratadesk.units import format_bytes

FLOOR_SLOTS = 128
"""Slots that decoding keeps beside the buffers of a small prompt."""

WAITING = "it waits until the prompt is read and the slots lent to it are refilled"


class SlotCache(Protocol):
    """What arena and phases need of the expert cache."""

    @property
    def slots(self) -> int:
        """Slots that are mapped."""

    @property
    def lent(self) -> int:
        """Slots that are LENT: those from 0 up to without this number."""

    @property
    def reserved(self) -> int:
        """Slots that are RESERVED for the background refill."""

    def lend(self, count: int) -> None:
        """Take slots 0 to `count` - 1 out of the map and make them LENT."""

    def give_back(self, counts: npt.NDArray[np.int64] | None) -> Sequence[Reservation]:
        """Make all LENT slots RESERVED or EMPTY.

        `counts` says how often a prompt used each expert, [layer, expert]; None brings those
        back that were resident before.
        """

    def trim(self, slots: int) -> None:
        """Take slots from `slots` on out of the map and make them UNMAPPED."""

    def grow(self, slots: int) -> None:
        """Make UNMAPPED slots below `slots` EMPTY."""

    def writing(self, first: int = 0, end: int | None = None) -> Sequence[int]:
        """The slots from `first` to before `end` into which a copy may still be writing."""

    def forget_copies(self) -> None:
        """Give up every fill and reservation, because no copy can be running any more."""

    def check(self) -> None:
        """Check the map and all states; InvariantError with numbers if they disagree."""


def require_quiet(cache: SlotCache, first: int = 0, end: int | None = None) -> None:
    """Check that nothing writes into slots whose bytes are about to be used for something else.

    Raises:
        InvariantError: when a copy still does.
    """
    writing = cache.writing(first, end)
    if writing:
        raise InvariantError(f"copies are still writing into slots {list(writing)}")


@dataclass(frozen=True, slots=True)
class Floor:
    """What a shrinking arena keeps, as offsets of its end; `least` is kept in any case.

    `usual` holds `slots` slots behind `least`, which prompt buffers reach.
    """

    usual: int
    least: int
    slots: int = 0

    def words(self, *, relaxed: bool) -> str:
        """Say what is kept, and up to where."""
        end = format_bytes(self.least if relaxed else self.usual)
        if relaxed or not self.slots:
            return f"fixed regions and a small prompt's buffers end at {end}"
        return f"fixed regions, a small prompt's buffers and {self.slots} slots end at {end}"


def floor_of(
    geometry: ArenaGeometry, start: int, buffer_bytes: int, slots: int = FLOOR_SLOTS
) -> Floor:
    """Return the floor for prompt buffers of `buffer_bytes` from `start` on.

    `least` holds the buffers, of a 256-token chunk by convention, and the head; `usual` holds
    `slots` slots more.
    """
    least = max(geometry.rows_start, start + aligned(buffer_bytes))
    if not geometry.layers:
        return Floor(least, least)
    return Floor(max(least, geometry.end_of(geometry.slots_touched(least) + slots)), least, slots)


@dataclass(frozen=True, slots=True)
class Wish:
    """An arena's end that is asked for.

    `relaxed` allows to go below the usual floor; `urgent` does not wait for a refill, as when
    other programs have taken the card's last bytes.
    """

    end: int
    relaxed: bool = False
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Resize:
    """What became of a wish: `asked` and `reached` are offsets of the arena's end.

    `done` is False while it waits. `limitation` says in words why less was reached than asked,
    empty when nothing stood in the way; blocks being whole is no limitation.
    """

    asked: int
    reached: int
    slots: int
    done: bool
    limitation: str = ""


class Resizer:
    """Grows and shrinks an arena and its cache together.

    `quiet` lets all copies end, and returns when they and the kernels queued before have.
    """

    def __init__(
        self, arena: Arena, cache: SlotCache, floor: Floor, quiet: Callable[[], None]
    ) -> None:
        self._arena = arena
        self._cache = cache
        self._floor = floor
        self._quiet = quiet

    def apply(self, wish: Wish) -> Resize:
        """Do what can be done of `wish`."""
        before = self._arena.end
        floor = min(self._floor.least if wish.relaxed else self._floor.usual, before)
        refused = self._move(wish.end, floor)
        if self._cache.slots < self._arena.slots:
            self._cache.grow(self._arena.slots)
        words = refused or self._limitation(wish, self._arena.end)
        return Resize(wish.end, self._arena.end, self._cache.slots, True, words)

    def preview(self, wish: Wish) -> Resize:
        """What `apply` would reach now if nothing is refused; changes nothing."""
        floor = min(self._floor.least if wish.relaxed else self._floor.usual, self._arena.end)
        reached = self._arena.target(wish.end, floor)
        words = self._limitation(wish, reached)
        return Resize(wish.end, reached, self._arena.slots_at(reached), False, words)

    def waiting(self, wish: Wish) -> Resize:
        """What there is to say of a wish that waits."""
        return Resize(wish.end, self._arena.end, self._cache.slots, False, WAITING)

    def _move(self, end: int, floor: int) -> str:
        """Resize cache and memory; return why that was refused, or nothing."""
        target = self._arena.target(end, floor)
        if target < self._arena.end:
            keep = min(self._cache.slots, self._arena.slots_at(target))
            self._cache.trim(keep)
            self._quiet()
            require_quiet(self._cache, keep)
        try:
            self._arena.resize(end, floor)
        except StrataDeskError as refused:
            return refused.sentence
        return ""

    def _limitation(self, wish: Wish, reached: int) -> str:
        if reached > wish.end:
            return self._floor.words(relaxed=wish.relaxed)
        if wish.end - reached >= self._arena.memory.block_bytes:
            return f"the address range ends at {format_bytes(reached)}"
        return ""
