"""Prompt buffers laid over the head and over slots: what is lent, and how it comes back."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.head_store import HeadStore
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.phase_table import HeadPlace
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.resizing import SlotCache, require_quiet
from stratadesk.engine.vram.slot_states import Reservation
from stratadesk.errors import MemoryShortageError, StrataDeskError, UsageError
from stratadesk.units import format_bytes

RETURN_TRIES = 2
"""How often the head is read back before giving up."""


class HeadLostError(StrataDeskError):
    """The output head could not be brought back whole."""

    title = "Output head lost"


class Overlay:
    """Lends the head and slots to one prompt at a time, and takes them back whole.

    `fixed_buffers` is the region of layout *fixed*, None where the arena has none. `head` is None
    when the geometry has no head region; the head then counts as in and is never lent. `quiet`
    lets all copies end, and returns when they and the kernels queued before have.
    """

    def __init__(
        self,
        arena: Arena,
        cache: SlotCache,
        head: HeadStore | None,
        fixed_buffers: Span | None,
        quiet: Callable[[], None],
    ) -> None:
        self._arena = arena
        self._geometry = arena.geometry
        self._cache = cache
        self._store = head
        self._fixed_buffers = fixed_buffers
        self._quiet = quiet
        self.head = HeadPlace.IN if head is None else HeadPlace.OUT
        self.layout: Layout | None = None
        self.buffers: Span | None = None
        """The bytes of the prompt's buffers, None when no prompt is read."""
        self.slots_lent = 0
        self.return_s = 0.0
        """How long the last return of the head took, check included."""

    def span_for(self, layout: Layout, buffer_bytes: int) -> Span:
        """Return where `buffer_bytes` of prompt buffers would lie; changes nothing.

        Raises:
            UsageError: when the arena does not have this layout.
            MemoryShortageError: when they do not fit.
        """
        start, end = self._room(layout)
        if buffer_bytes > end - start:
            raise MemoryShortageError(
                f"The prompt's buffers need {format_bytes(buffer_bytes)}, and layout {layout} "
                f"has {format_bytes(max(0, end - start))}.",
                "Choose a smaller --prefill chunk or a smaller reserve.",
            )
        return Span(start, start + buffer_bytes)

    def lend(self, layout: Layout, buffers: Span) -> None:
        """Take the head and the slots under `buffers` out of use."""
        self.layout, self.buffers = layout, buffers
        if layout is Layout.ALIAS:
            self.head = HeadPlace.OUT
        if layout is not Layout.FIXED:
            touched = self._geometry.slots_touched(buffers.end)
            self.slots_lent = min(touched, self._cache.slots)
            self._cache.lend(self.slots_lent)

    def clear_buffers(self) -> None:
        """Wait until nobody else writes to what is lent, and poison it."""
        self._quiet()
        require_quiet(self._cache, 0, self.slots_lent)
        self._poison_lent()

    def start_return(self) -> None:
        """Say that the head, if it is out, is on its way back."""
        if self.head is HeadPlace.OUT:
            self.head = HeadPlace.RETURNING

    def take_back(self, counts: npt.NDArray[np.int64] | None) -> Sequence[Reservation]:
        """End the prompt's use: head back and verified, lent slots RESERVED or EMPTY.

        `counts` is handed to the cache's `give_back`; returns what that returned.

        Raises:
            HeadLostError: when the head does not come back right.
        """
        self._poison_lent()
        if self.head is not HeadPlace.IN:
            self.return_head()
        reservations = self._cache.give_back(counts) if self.slots_lent else ()
        self.layout, self.buffers, self.slots_lent = None, None, 0
        return reservations

    def return_head(self) -> None:
        """Read the head back, once more if it comes back wrong.

        Raises:
            HeadLostError: when it is still wrong or cannot be read.
        """
        started = time.perf_counter()
        trouble = self._trouble_returning()
        for _ in range(RETURN_TRIES - 1):
            if trouble:
                trouble = self._trouble_returning()
        self.return_s = time.perf_counter() - started
        if trouble:
            self.give_up()
            raise HeadLostError(
                f"The output head could not be read back in {RETURN_TRIES} tries: {trouble}.",
                "Load the model again; if it happens again, check the model file and the memory.",
            )
        self.head = HeadPlace.IN

    def verify_head(self) -> None:
        """Check the head's bytes where they lie; they count as in afterwards.

        Raises:
            HeadLostError: when they are not the head's; the head then counts as out.
        """
        if self._store is None:
            return
        trouble = self._difference(self._store)
        if trouble:
            self.give_up()
            raise HeadLostError(f"The output head is damaged: {trouble}.", "Load the model again.")
        self.head = HeadPlace.IN

    def give_up(self) -> None:
        """Count the head as out, because something failed and its bytes are not certain."""
        if self._store is not None:
            self.head = HeadPlace.OUT

    def check(self, *, resting: bool) -> None:
        """Check that the books agree with the cache and, when `resting`, that all is back.

        Raises:
            InvariantError: when they do not; names all figures.
        """
        facts = (
            f"head {self.head}, layout {self.layout}, {self.slots_lent} slots lent, the cache has "
            f"{self._cache.lent} of {self._cache.slots} lent, the arena room for "
            f"{self._arena.slots}"
        )
        if self._cache.lent != self.slots_lent or self._cache.slots != self._arena.slots:
            raise InvariantError(f"arena and cache disagree: {facts}")
        if resting and (self.head is not HeadPlace.IN or self.slots_lent or self.layout):
            raise InvariantError(f"something lent to a prompt is not back: {facts}")

    @property
    def head_lent(self) -> bool:
        """Whether a prompt's buffers lie over the head."""
        return self.layout is Layout.ALIAS

    @property
    def lent_end(self) -> int:
        """The byte behind the last one lent from the head or the rows on."""
        if self.buffers is None or self.layout is Layout.FIXED:
            return self._geometry.rows_start
        ends = (self._geometry.rows_start, self.buffers.end, self._slots_end(self.slots_lent))
        return max(ends)

    def _slots_end(self, slots: int) -> int:
        return self._geometry.end_of(slots) if slots else self._geometry.rows_start

    def _room(self, layout: Layout) -> tuple[int, int]:
        if layout is Layout.LOAN:
            return self._geometry.rows_start, self._arena.end
        if layout is Layout.ALIAS and self._store is not None:
            return self._geometry.head.start, self._arena.end
        if layout is Layout.FIXED and self._fixed_buffers is not None:
            return self._fixed_buffers.start, self._fixed_buffers.end
        raise UsageError(
            f"This model was loaded without prompt layout {layout}.",
            "Choose another --prefill-layout, or --prefill-head-alias off.",
        )

    def _poison_lent(self) -> None:
        if self.buffers is None:
            return
        is_fixed = self.layout is Layout.FIXED
        end = self.buffers.end if is_fixed else max(self.buffers.end, self.lent_end)
        self._arena.memory.poison(Span(self.buffers.start, end))

    def _trouble_returning(self) -> str:
        """Copy the head in and check it; what was wrong in words, or nothing."""
        if self._store is None:
            return ""
        try:
            self._store.restore(self._geometry.head)
        except (OSError, StrataDeskError) as error:
            return " ".join(str(error).split()).rstrip(".")
        return self._difference(self._store)

    def _difference(self, store: HeadStore) -> str:
        found = store.measure(self._geometry.head)
        if found == store.checksum:
            return ""
        return f"its checksum is {found:016x} instead of {store.checksum:016x}"
