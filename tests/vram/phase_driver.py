"""A seeded random user, model, disk and card around one machine; all is compared after each step.

The driver plays everything that may happen to a loaded model: prompts of all layouts and sizes
that overwrite what was lent to them, decode steps, background copies that begin and end at
different times, cancels, failures of every kind, changes of reserve and alias, other programs.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from stratadesk.engine.vram.arena import Allocation
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import HeadLostError
from stratadesk.engine.vram.phase_table import COMPUTING, NEXT_STATES, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.resizing import Resize
from stratadesk.engine.vram.slot_states import NO_SLOT
from stratadesk.engine.vram.slot_store import CopyError
from stratadesk.errors import MemoryShortageError
from tests.vram.phase_harness import (
    BLOCK,
    CAPACITY,
    CARD,
    EXPERTS,
    FLIPPED_BYTE,
    GEOMETRY,
    READ_ERROR,
    USED,
    Bytes,
    Rig,
    WrongBytesError,
    noise,
)

FAULTS: tuple[list[str], ...] = (
    [],
    [],
    [],
    [READ_ERROR],
    [FLIPPED_BYTE],
    [READ_ERROR, FLIPPED_BYTE],
    [FLIPPED_BYTE, FLIPPED_BYTE],
)
"""Two in a row are one more than the machine forgives."""

EVERYTHING = frozenset(
    {
        *("loading", "loaded", "reload", "failure", "reset", "cancel", "illegal", "alias"),
        *("prompt begins", "prompt too large", "chunk", "prompt ends", "head lost"),
        *("decode begins", "decode step", "fill failed", "decode ends", "safe point"),
        *("copy begins", "copy ends", "refill failed", "other programs"),
        *("resize", "resize waits", "map refused", "grown", "shrunk"),
    }
)
"""What a run of some thousand steps has done at least once."""


class Driver:
    """Takes one random step at a time; `done` counts them by what they were."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.slots_compared = 0
        self.events = 0
        self.written: Bytes | None = None
        self.rig = Rig()
        self.before: VramState = VramState.EMPTY

    def run(self, steps: int) -> None:
        for _ in range(steps):
            name, action = self.random.choice(self._choices())
            action()
            self.done[name] += 1
            self.check()

    def check(self) -> None:
        """Compare every book and every byte."""
        rig = self.rig
        rig.machine.check()
        self.slots_compared += rig.check_bytes()
        self._check_guards()
        self._check_buffers()
        self._check_events()
        ledger = rig.machine.ledger()
        assert sum(line.n_bytes for line in ledger.lines) + ledger.free == CARD
        assert rig.arena.end == rig.card.ours == self._allocated()

    def _choices(self) -> list[tuple[str, Callable[[], None]]]:
        always: list[tuple[str, Callable[[], None]]] = [
            ("alias", self._alias),
            ("illegal", self._illegal),
            ("other programs", self._others),
            ("cancel", self._cancel),
            ("failure", self._failure),
        ]
        return always + self._choices_in(self.rig.machine.state)

    def _choices_in(self, state: VramState) -> list[tuple[str, Callable[[], None]]]:
        copies = [("copy begins", self._copy_begins), ("copy ends", self._copy_ends)]
        resize = [("resize", self._resize)]
        match state:
            case VramState.EMPTY:
                return [("loading", self.rig.machine.loading)] * 5
            case VramState.LOADING:
                return [("loaded", self._load)] * 10
            case VramState.READY:
                decode = ("decode begins", self.rig.machine.begin_decode)
                prompt = ("prompt begins", self._begin_prompt)
                return [prompt] * 6 + [decode] * 4 + copies + resize + [("reload", self._reload)]
            case VramState.PROMPT:
                ends = [("prompt ends", self._end_prompt)]
                return [("chunk", self._chunk)] * 4 + ends * 5 + copies + resize
            case VramState.DECODING:
                step = [("decode step", self._decode_step)] * 8
                ends = [("decode ends", self.rig.machine.end_decode)] * 2
                return step + ends + copies * 3 + resize + [("safe point", self._safe_point)]
            case VramState.FAILED:
                return [("reset", self._reset)] * 5
        raise AssertionError(f"a step left the machine in {state}")

    def _load(self) -> None:
        wrong = self.random.random() < 0.2
        self.rig.head_faults.coming = [FLIPPED_BYTE] if wrong else []
        self.rig.write_weights()
        if wrong:
            with pytest.raises(HeadLostError):
                self.rig.machine.loaded()
            assert self.rig.machine.state is VramState.FAILED
        else:
            self.rig.machine.loaded()

    def _reload(self) -> None:
        if self.random.random() < 0.7:
            return
        self.rig.land_all()
        self.rig.machine.release()
        self._fresh()

    def _fresh(self) -> None:
        """Begin anew with another arena on the same card, where it may be short of room."""
        self._check_events()
        self.events, self.before = 0, VramState.EMPTY
        card = self.rig.card
        assert card.ours == 0
        card.others = self.random.choice((0, 3 * BLOCK, 14 * BLOCK))
        self.rig = Rig(card, end=self.random.randrange(3 * BLOCK, 6 * BLOCK))

    def _begin_prompt(self) -> None:
        machine, layout = self.rig.machine, self.random.choice(list(Layout))
        n_bytes = self.random.randrange(1, self.random.choice((600, 2000, 14 * BLOCK)))
        if layout is Layout.ALIAS and machine.alias is HeadAlias.OFF:
            with pytest.raises(InvariantError, match="although the alias is off"):
                machine.begin_prompt(layout, n_bytes)
            return
        held = len(self.rig.allocations)
        try:
            span = machine.begin_prompt(layout, n_bytes)
        except MemoryShortageError:
            self.done["prompt too large"] += 1
            assert machine.state is VramState.READY
            return
        assert span.size == n_bytes
        assert len(self.rig.allocations) == held
        assert (self.rig.arena.view(span) == 0xFF).all(), "lent bytes were not poisoned"
        self._chunk()

    def _chunk(self) -> None:
        """Overwrite all that was lent, as a prompt's kernels would."""
        span = self._buffers()
        self.written = noise(self.random.randrange(1 << 30), span.size)
        self.rig.arena.view(span)[:] = self.written

    def _buffers(self) -> Span:
        phase = self.rig.events[-1]
        starts = {
            Layout.FIXED: 512,
            Layout.LOAN: GEOMETRY.rows_start,
            Layout.ALIAS: GEOMETRY.head.start,
        }
        assert phase.layout is not None
        start = starts[phase.layout]
        return Span(start, start + phase.bytes_lent)

    def _end_prompt(self) -> None:
        held = len(self.rig.allocations)
        self._with_head_faults(lambda: self.rig.waiting.extend(self.rig.machine.end_prompt()))
        assert len(self.rig.allocations) == held

    def _cancel(self) -> None:
        before = self.rig.machine.state
        self._with_head_faults(lambda: self.rig.waiting.extend(self.rig.machine.cancel()))
        after = self.rig.machine.state
        rests = {VramState.EMPTY, VramState.READY, VramState.FAILED}
        if before in rests:
            assert after is before
        elif before is VramState.LOADING:
            assert after is VramState.EMPTY
            self._fresh()
        else:
            assert after in {VramState.READY, VramState.FAILED}

    def _with_head_faults(self, action: Callable[[], None]) -> None:
        """Do what brings the head back, with random faults; it is lost only if there are two."""
        rig, faults = self.rig, list(self.random.choice(FAULTS))
        is_out = rig.machine.state is VramState.PROMPT and rig.events[-1].head != "in"
        is_out = is_out or rig.machine.state is VramState.FAILED
        rig.head_faults.coming = faults
        lost = is_out and len(faults) == 2
        try:
            action()
        except HeadLostError:
            self.done["head lost"] += 1
            assert lost
        rig.head_faults.coming = []
        self.written = None

    def _failure(self) -> None:
        if self.random.random() < 0.9 or self.rig.machine.state is VramState.EMPTY:
            return
        self.rig.machine.fail(RuntimeError("a kernel failed"))
        assert self.rig.machine.why
        self.written = None

    def _reset(self) -> None:
        machine = self.rig.machine
        faults = self.random.choice(FAULTS)
        self.rig.head_faults.coming = list(faults)
        try:
            machine.reset()
        except HeadLostError:
            assert machine.state is VramState.FAILED
        self.rig.head_faults.coming = []
        self.rig.waiting.clear()
        if machine.state is VramState.EMPTY:
            self._fresh()

    def _decode_step(self) -> None:
        rig = self.rig
        rig.machine.head()
        rig.expert_faults.coming = list(self.random.choice(FAULTS))
        try:
            for layer in range(GEOMETRY.layers):
                for placement in rig.use(layer, self.random.sample(range(EXPERTS), USED)):
                    if placement.slot != NO_SLOT:
                        rig.machine.slot(placement.slot)
        except CopyError:
            self.done["fill failed"] += 1
        rig.expert_faults.coming = []

    def _copy_begins(self) -> None:
        if self.rig.waiting:
            self.rig.start_copy()

    def _copy_ends(self) -> None:
        if not self.rig.flights:
            return
        self.rig.expert_faults.coming = list(self.random.choice(FAULTS))
        try:
            self.rig.land(self.random.choice(self.rig.flights))
        except CopyError:
            self.done["refill failed"] += 1
        self.rig.expert_faults.coming = []

    def _resize(self) -> None:
        rig, state = self.rig, self.rig.machine.state
        before = rig.arena.end
        rig.card.refuse_after = self.random.choice((None, None, 0, 1))
        result = rig.machine.resize(
            self.random.randrange(GEOMETRY.rows_start, CAPACITY + 2 * BLOCK),
            relaxed=self.random.random() < 0.3,
            urgent=self.random.random() < 0.3,
        )
        rig.card.refuse_after = None
        if not result.done:
            self.done["resize waits"] += 1
            assert state is VramState.PROMPT or rig.cache.reserved
            assert rig.arena.end == before
        self._check_resize(result, before)

    def _safe_point(self) -> None:
        before = self.rig.arena.end
        result = self.rig.machine.safe_point()
        if result is not None:
            self._check_resize(result, before)

    def _check_resize(self, result: Resize, before: int) -> None:
        assert result.reached == self.rig.arena.end
        assert result.slots == self.rig.arena.slots
        missed = abs(result.asked - result.reached) >= BLOCK or result.reached > result.asked
        assert bool(result.limitation) or not missed
        if result.limitation.startswith("The card refused"):
            self.done["map refused"] += 1
            assert result.reached == before
        if result.reached > before:
            self.done["grown"] += 1
        elif result.reached < before:
            self.done["shrunk"] += 1

    def _alias(self) -> None:
        machine = self.rig.machine
        old, mode = machine.alias, self.random.choice(list(HeadAlias))
        at_once = machine.set_alias(mode)
        assert machine.alias_next is mode
        if machine.state is VramState.PROMPT:
            assert machine.alias is old
        else:
            assert at_once

    def _others(self) -> None:
        self.rig.card.others = self.random.randrange(CARD)

    def _illegal(self) -> None:
        """Try what the state does not allow; nothing may come of it."""
        machine = self.rig.machine
        attempts: tuple[tuple[VramState, VramState, Callable[[], object]], ...] = (
            (VramState.EMPTY, VramState.LOADING, machine.loading),
            (VramState.LOADING, VramState.READY, machine.loaded),
            (VramState.READY, VramState.PROMPT, lambda: machine.begin_prompt(Layout.LOAN, 9)),
            (VramState.PROMPT, VramState.RETURNING, machine.end_prompt),
            (VramState.READY, VramState.DECODING, machine.begin_decode),
            (VramState.DECODING, VramState.READY, machine.end_decode),
            (VramState.FAILED, VramState.RETURNING, machine.reset),
        )
        now, state, attempt = self.random.choice(attempts)
        if now is machine.state:
            return
        before, events = machine.state, len(self.rig.events)
        with pytest.raises(InvariantError, match=f"from {before} to {state}"):
            attempt()
        assert machine.state is before
        assert len(self.rig.events) == events

    def _check_guards(self) -> None:
        """Head and slots are given out exactly when a kernel may read them."""
        machine = self.rig.machine
        if machine.state not in COMPUTING:
            for ask in (machine.head, lambda: machine.slot(self.rig.cache.slots - 1)):
                with pytest.raises(InvariantError, match="must not be used"):
                    ask()
            return
        if self.rig.events[-1].head != "in":
            with pytest.raises(InvariantError, match="the head is out"):
                machine.head()
        if self.rig.cache.lent:
            with pytest.raises(InvariantError, match="is not the cache's"):
                machine.slot(self.rig.cache.lent - 1)

    def _check_buffers(self) -> None:
        """Nobody but the prompt writes to its buffers."""
        if self.rig.machine.state is not VramState.PROMPT or self.written is None:
            return
        if (self.rig.arena.view(self._buffers()) != self.written).any():
            raise WrongBytesError("a prompt's buffers were written to by somebody else")

    def _check_events(self) -> None:
        """Every change was told, each a legal one, with a ledger that adds up."""
        for phase in self.rig.events[self.events :]:
            assert phase.state in NEXT_STATES[self.before], (self.before, phase.state)
            assert phase.ledger.unexplained == 0
            self.before = phase.state
            self.events += 1
        assert self.rig.machine.state is self.before

    def _allocated(self) -> int:
        """What the allocation hook has seen."""
        taken = {Allocation.MAPPED, Allocation.ALLOCATED}
        return sum(n if kind in taken else -n for kind, n in self.rig.allocations)
