"""The machine that overlays prompt buffers on head and slots, and never lets stale bytes be used.

Before a prompt, lent slots leave the residency map and the head counts as out; after it, however
it ends, the head is read back and its full checksum compared before anything may be computed
with it. Every change of state is checked against the table, books are balanced, and a
`VramPhase` tells it. All methods are called by the one thread that owns the device.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.head_store import HeadStore
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.ledger import CardFigures, Ledger, LedgerLine, arena_lines, make_ledger
from stratadesk.engine.vram.overlay import Overlay
from stratadesk.engine.vram.phase_table import (
    COMPUTING,
    NEXT_STATES,
    RESTING,
    HeadPlace,
    VramPhase,
    VramState,
)
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.resizing import Floor, Resize, Resizer, SlotCache, Wish
from stratadesk.engine.vram.slot_states import Reservation
from stratadesk.errors import StrataDeskError


def _nothing_runs() -> None:
    """Wait for nothing: copies and kernels run on the caller's thread."""


@dataclass(frozen=True, slots=True)
class VramOptions:
    """How a machine is set up.

    `floor` is what resizing keeps, None for fixed regions and head alone. `fixed_buffers` is the
    region of layout *fixed*; `fixed_parts` divides up the fixed region for the ledger. `reserve`
    is what should stay free on the card. `unexplained_limit` is how many bytes the ledger may
    leave unexplained. `recheck` compares the head's checksum at every use (tests, debugging).
    `quiet` lets all copies end, reports them to the cache, and returns when they and the kernels
    queued before have ended.
    """

    floor: Floor | None = None
    fixed_buffers: Span | None = None
    fixed_parts: tuple[LedgerLine, ...] = ()
    reserve: int = 0
    unexplained_limit: int = 0
    recheck: bool = False
    quiet: Callable[[], None] = _nothing_runs
    clock: Callable[[], float] = time.monotonic


class VramMachine:
    """The state of one loaded model's memory, and all that may change it.

    A request is `begin_prompt`, `end_prompt`, `end_decode`, or `begin_decode`, `end_decode` when
    its tokens are read by the decode path. `cancel` ends it from anywhere. `head` and `slot` are
    asked before each use and refuse while the bytes are not certain. `emit` is told of every
    change; `card` gives the driver's latest figures.
    """

    def __init__(
        self,
        arena: Arena,
        cache: SlotCache,
        head: HeadStore | None,
        emit: Callable[[VramPhase], None],
        card: Callable[[], CardFigures],
        options: VramOptions = VramOptions(),
    ) -> None:
        self.arena = arena
        self.cache = cache
        self.state = VramState.EMPTY
        self.why = ""
        """Why the state is FAILED, one sentence; empty in other states."""
        self.reserve = options.reserve
        """Bytes that should stay free on the card; a figure for the ledger."""
        self.alias = HeadAlias.AUTO
        """The mode that the prompt being read, or the next one, goes by."""
        self.alias_next = HeadAlias.AUTO
        """The mode that the next prompt goes by."""
        self._emit = emit
        self._card = card
        self._options = options
        self._overlay = Overlay(arena, cache, head, options.fixed_buffers, options.quiet)
        floor = options.floor or Floor(arena.geometry.rows_start, arena.geometry.rows_start)
        self._resizer = Resizer(arena, cache, floor, options.quiet)
        self._wish: Wish | None = None
        self._settled_end = arena.end
        self._is_loaded = False

    def loading(self) -> None:
        """Weights are about to be written: EMPTY → LOADING, once."""
        if not self.arena.end:
            raise InvariantError("nothing can be loaded into an arena that was released")
        self._enter(VramState.LOADING)

    def loaded(self) -> None:
        """All is written: check the head's bytes; LOADING → READY.

        Raises:
            HeadLostError: when they are wrong; the state is FAILED then.
        """
        self._require_step(VramState.LOADING, VramState.READY)
        with self._failing():
            self._overlay.verify_head()
            self._is_loaded = True
            self._enter(VramState.READY)

    def begin_prompt(self, layout: Layout, buffer_bytes: int) -> Span:
        """Lend what prompt buffers of `buffer_bytes` in `layout` cover; READY → PROMPT.

        Everything in the span returned may be overwritten until `end_prompt` or `cancel`.

        Raises:
            UsageError: when the arena does not have this layout.
            MemoryShortageError: when the buffers do not fit. Both leave the state READY.
        """
        self._require_step(VramState.READY, VramState.PROMPT)
        if layout is Layout.ALIAS and self.alias is HeadAlias.OFF:
            raise InvariantError("a prompt would take the head's bytes although the alias is off")
        buffers = self._overlay.span_for(layout, buffer_bytes)
        with self._failing():
            self._overlay.lend(layout, buffers)
            self._enter(VramState.PROMPT)
            self._overlay.clear_buffers()
        return buffers

    def end_prompt(self, counts: npt.NDArray[np.int64] | None = None) -> Sequence[Reservation]:
        """Bring head and slots back: PROMPT → RETURNING → DECODING.

        Nothing in the prompt's buffers survives this: the hidden state of its last token must
        have been copied out, and its logits are the first work of DECODING. `counts` says how
        often the prompt used each expert, int64 [layer, expert]; the reservations are the
        background refill's work.

        Raises:
            HeadLostError: when the head does not come back right; the state is FAILED then.
        """
        self._require_step(VramState.PROMPT, VramState.RETURNING)
        with self._failing():
            self._overlay.start_return()
            self._enter(VramState.RETURNING)
            reservations = self._overlay.take_back(counts)
            self._enter(VramState.DECODING)
        self.alias = self.alias_next
        return reservations

    def begin_decode(self) -> None:
        """Read a request's tokens by the decode path: READY → DECODING."""
        self._require_step(VramState.READY, VramState.DECODING)
        self._enter(VramState.DECODING)

    def end_decode(self) -> None:
        """The request is over: DECODING → READY, then do what waited for that."""
        self._require_step(VramState.DECODING, VramState.READY)
        self._enter(VramState.READY)
        self.safe_point()

    def cancel(self) -> Sequence[Reservation]:
        """End what runs, with head and map as whole as before it; what rests is left alone.

        From PROMPT and DECODING over CANCELLING to READY, with slots refilled as they were; from
        LOADING to EMPTY. Returns the background refill's work.

        Raises:
            HeadLostError: as `end_prompt`.
        """
        if self.state in {VramState.EMPTY, VramState.READY, VramState.FAILED}:
            return ()
        if self.state is VramState.LOADING:
            self.release()
            return ()
        self._expect(VramState.CANCELLING)
        with self._failing():
            self._overlay.start_return()
            self._enter(VramState.CANCELLING)
            reservations = self._overlay.take_back(None)
            self._enter(VramState.READY)
        self.alias = self.alias_next
        self.safe_point()
        return reservations

    def fail(self, error: BaseException | str) -> None:
        """What the memory holds is no longer certain: go to FAILED; the first reason stays."""
        if self.state is VramState.FAILED:
            return
        self._expect(VramState.FAILED)
        known = isinstance(error, StrataDeskError | str)
        self.why = str(error) if known else f"{type(error).__name__}: {error}"
        self._overlay.give_up()
        self._enter(VramState.FAILED)

    def reset(self) -> None:
        """Leave FAILED: with a loaded model for READY, head read back and all slots empty.

        Without one, release everything and go to EMPTY.

        Raises:
            HeadLostError: when the head is still wrong; the state is FAILED again.
        """
        self._require_step(VramState.FAILED, VramState.RETURNING)
        if not self._is_loaded:
            self.release()
            return
        self._enter(VramState.RETURNING)
        with self._failing():
            self._overlay.start_return()
            self._overlay.take_back(None)
            self._options.quiet()
            self.cache.forget_copies()
            self.cache.trim(0)
            self.cache.grow(self.arena.slots)
            self._enter(VramState.READY)
        self.alias = self.alias_next
        self.safe_point()

    def release(self) -> None:
        """Give all memory back and go to EMPTY; this machine cannot load again."""
        self._expect(VramState.EMPTY)
        self.arena.release()
        self._is_loaded, self._settled_end, self._wish = False, 0, None
        self._enter(VramState.EMPTY)

    def resize(self, end: int, *, relaxed: bool = False, urgent: bool = False) -> Resize:
        """Ask for the arena to end at offset `end`; a later wish replaces one that waits.

        Done at once when READY, or when DECODING and no slot waits for its refill (`urgent`
        does not care); otherwise at the first `safe_point` of that kind. `relaxed` allows less
        than the usual floor. The caller is between two steps.
        """
        if self.state not in {VramState.READY, VramState.PROMPT, VramState.DECODING}:
            raise InvariantError(f"the arena cannot be resized while it is {self.state}")
        wish = self._wish = Wish(end, relaxed, urgent)
        return self.safe_point() or self._resizer.waiting(wish)

    def preview(self, end: int) -> tuple[Resize, bool]:
        """Tell what `resize` would reach, and whether it would have to wait; changes nothing."""
        wish = Wish(end)
        return self._resizer.preview(wish), not self._is_time_for(wish)

    def safe_point(self) -> Resize | None:
        """Between two steps: do a resize that waits, if now is its time; what came of it."""
        wish, back = self._wish, self.state
        if wish is None or not self._is_time_for(wish):
            return None
        self._wish = None
        self._enter(VramState.RESIZING)
        with self._failing():
            result = self._resizer.apply(wish)
            self._settled_end = self.arena.end
            self._enter(back, result)
        return result

    def set_alias(self, mode: HeadAlias) -> bool:
        """Choose whether prompts may take the head's bytes; returns False if from the next on."""
        self.alias_next = mode
        if self.state is not VramState.PROMPT:
            self.alias = mode
        return self.alias is mode

    def head(self) -> Span:
        """Return where the head's verified bytes lie; empty when the head is not a region.

        Raises:
            InvariantError: while they are not there, or the state allows no compute.
            HeadLostError: with option `recheck`, when they are wrong; the state is FAILED then.
        """
        self._require_computing("the head")
        if self._overlay.head is not HeadPlace.IN:
            raise InvariantError(f"the head is {self._overlay.head} while {self.state}")
        if self._options.recheck:
            with self._failing():
                self._overlay.verify_head()
        return self.arena.geometry.head

    def slot(self, number: int) -> Span:
        """Return where slot `number` lies.

        Raises:
            InvariantError: while it is lent or not mapped, or the state allows no compute.
        """
        self._require_computing(f"slot {number}")
        if not self._overlay.slots_lent <= number < self.cache.slots:
            raise InvariantError(
                f"slot {number} is not the cache's: slots 0 to {self._overlay.slots_lent - 1} "
                f"are lent, and {self.cache.slots} are mapped"
            )
        return self.arena.geometry.slot(number)

    def ledger(self) -> Ledger:
        """Return whose every byte of the card is now."""
        ours = arena_lines(
            self.arena.geometry,
            self.arena.end,
            self.arena.slots,
            self._options.fixed_parts,
            head_lent=self._overlay.head_lent,
            lent_end=self._overlay.lent_end,
        )
        return make_ledger(self._card(), ours, self.reserve)

    def check(self) -> None:
        """Check every invariant of this layer and the cache's.

        Raises:
            InvariantError: names the rule that is broken and the numbers.
        """
        self._check_books(self.ledger())
        self.cache.check()

    def _check_books(self, ledger: Ledger) -> None:
        ledger.check(self._options.unexplained_limit)
        if self.arena.end != self._settled_end:
            raise InvariantError(
                f"the arena ends at {self.arena.end}, not where it was left: {self._settled_end}"
            )
        if self._is_loaded:
            self._overlay.check(resting=self.state in RESTING)

    def _is_time_for(self, wish: Wish) -> bool:
        refilled = wish.urgent or self.cache.reserved == 0
        return self.state is VramState.READY or (self.state is VramState.DECODING and refilled)

    def _require_computing(self, what: str) -> None:
        if self.state not in COMPUTING:
            why = f": {self.why}" if self.why else ""
            raise InvariantError(f"{what} must not be used while {self.state}{why}")

    def _require_step(self, now: VramState, state: VramState) -> None:
        """Check that a method that leads from `now` to `state` was called in `now`."""
        if self.state is not now:
            raise InvariantError(f"the memory cannot go from {self.state} to {state} here")

    def _expect(self, state: VramState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise InvariantError(f"the memory cannot go from {self.state} to {state}")

    def _enter(self, state: VramState, resize: Resize | None = None) -> None:
        self._expect(state)
        self.state = state
        ledger = self.ledger()
        if state is not VramState.FAILED:
            self.why = ""
            self._check_books(ledger)
        self._emit(self._describe(ledger, resize))

    def _describe(self, ledger: Ledger, resize: Resize | None) -> VramPhase:
        overlay = self._overlay
        return VramPhase(
            state=self.state,
            at=self._options.clock(),
            layout=overlay.layout,
            bytes_lent=overlay.buffers.size if overlay.buffers else 0,
            slots_lent=overlay.slots_lent,
            head=overlay.head,
            head_bytes=self.arena.geometry.head.size,
            return_s=overlay.return_s,
            arena_end=self.arena.end,
            ledger=ledger,
            resize=resize,
            why=self.why,
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Go to FAILED when the `with` block raises; the exception goes on."""
        with ExitStack() as exits:
            exits.push(self._fail_on)
            yield

    def _fail_on(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)
