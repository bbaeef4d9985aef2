"""A seeded random user, card and disk around a real model; all is compared after each step.

Every step is the shipped engine's: requests of all sizes, cancels in every phase, operations and
copies that fail, a memory that fails, changes of reserve and alias, other programs. Logits are
compared, bit by bit, with those of the same model without a card.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import pytest

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import HeadLostError
from stratadesk.engine.vram.phase_table import HeadPlace, VramState
from stratadesk.engine.vram.plan_settings import PIN_ALL, HeadAlias, Layout
from stratadesk.engine.vram.slot_store import CopyError
from stratadesk.units import KIB, MIB
from tests.vram.host_bench import (
    CONTEXT,
    DELTA_NET,
    FLIPPED_BYTE,
    READ_ERROR,
    TINY,
    Floats,
    HostRig,
    random_ids,
    reference,
    same_bits,
)

CARDS = {
    TINY: (750 * KIB, 900 * KIB, 1 * MIB, 2 * MIB),
    DELTA_NET: (2_700 * KIB, 3 * MIB, 5 * MIB),
}
FORMATS = {TINY: (KvFormat.F32, KvFormat.F16), DELTA_NET: (KvFormat.F32,)}
SEQUENCES = 4
BLOCK = 4_096

FAULTS: tuple[list[str], ...] = (
    [],
    [],
    [READ_ERROR],
    [FLIPPED_BYTE],
    [READ_ERROR, FLIPPED_BYTE],
    [FLIPPED_BYTE, FLIPPED_BYTE],
)
"""Two in a row are one more than is forgiven."""

OPERATIONS = (
    *("embed", "linear", "route", "experts", "rms_norm", "rotate_halves", "attention", "add"),
    *("delta_gates", "causal_convolution", "delta_rule", "rms_norm_silu_gate", "split_pairs"),
)

EVERYTHING = frozenset(
    {
        *("load?", "load", "memory fails?", "memory fails", "recover", "head lost"),
        *("prompt begins", "prompt goes on", "chunk", "prompt ends", "short read"),
        *("decode begins", "token", "window", "decode ends"),
        *("cancel in prompt", "cancel in decoding", "copy", "copy failed"),
        *("kernel in prompt", "kernel failed in prompt"),
        *("kernel in decoding", "kernel failed in decoding"),
        *("resize", "resize waits", "map refused", "grown", "shrunk", "alias", "other programs"),
    }
)
"""What a run of some thousand steps has done at least once."""


class KernelError(RuntimeError):
    """What a failing operation raises."""


@cache
def sequence(number: int) -> Sequence[int]:
    return random_ids(100 + number, CONTEXT)


@cache
def right_logits(name: str, kv: KvFormat, number: int) -> Floats:
    """Logits after every token of a sequence, computed without a card."""
    return reference(name, kv).logits(sequence(number))


class Driver:
    """Takes one random step at a time; `done` counts them by what they were.

    With `trusting` nothing but answers is compared, and the product checks no more than it does
    for a user.
    """

    def __init__(self, seed: int, name: str, *, trusting: bool = False) -> None:
        self.random = random.Random(seed)
        self.name = name
        self.trusting = trusting
        self.done: Counter[str] = Counter()
        self.slots_compared = self.logits_compared = 0
        self._load()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            name, action = self.random.choice(self._choices())
            action()
            self.done[name] += 1
            if not self.trusting:
                self.slots_compared += self.bench.check()
        self.bench.close()

    def _load(self) -> None:
        """A model with other settings, on another card."""
        self.done["load"] += 1
        pick = self.random.choice
        self.kv = pick(FORMATS[self.name])
        self.bench = HostRig(
            self.name,
            card=pick(CARDS[self.name]),
            kv=self.kv,
            poison=not self.trusting,
            alias=pick(list(HeadAlias)),
            prefill_layout=pick((None, Layout.FIXED, Layout.LOAN, Layout.LOAN)),
            expert_cache=pick((None, None, None, None, 1, 3)),
            pin=pick((0, 100 * KIB, PIN_ALL)),
            short_read=pick((0, 12)),
            block_bytes=BLOCK,
        )
        self._restart()

    def _restart(self) -> None:
        self.number = self.random.randrange(SEQUENCES)
        self.state = self.bench.new_state()
        self.until = 0

    @property
    def _room(self) -> int:
        return CONTEXT - self.state.position

    def _choices(self) -> list[tuple[str, Callable[[], None]]]:
        always = [("alias", self._alias), ("resize", self._resize)]
        match self.bench.machine.state:
            case VramState.READY:
                prompt = [("prompt begins", self._begin_prompt)] * 8
                decode = [("decode begins", self._begin_decode)] * 3
                rare = [("other programs", self._others), ("load?", self._reload)]
                return prompt + decode + rare + always * 2
            case VramState.PROMPT:
                cancel = [("cancel in prompt", self._cancel)]
                fails = [("kernel in prompt", self._failing_kernel)]
                return [("chunk", self._chunk)] * 6 + cancel + fails + always
            case VramState.DECODING:
                ends = [("decode ends", self.bench.model.end_request)] * 2
                cancel = [("cancel in decoding", self._cancel)]
                return [*self._steps(), *ends, *cancel, ("memory fails?", self._failure), *always]
            case VramState.FAILED:
                return [("recover", self._recover)]
        raise AssertionError(f"a step left the machine in {self.bench.machine.state}")

    def _steps(self) -> list[tuple[str, Callable[[], None]]]:
        if not self._room:
            return []
        fails = [
            ("kernel in decoding", self._failing_kernel),
            ("copy", self._failing_copy),
        ]
        return [("token", self._token)] * 5 + [("window", self._window)] + fails

    def _begin_prompt(self) -> None:
        if self._room < 2 or self.random.random() < 0.4:
            self._restart()
        else:
            self.done["prompt goes on"] += 1
        most = min(self._room, self.random.choice((3, 20, 70, 150)))
        fresh = self.random.randint(1, most)
        self.choice = self.bench.model.begin_request(fresh)
        self.until = self.state.position + fresh
        if self.choice.layout is None:
            self.done["short read"] += 1

    def _begin_decode(self) -> None:
        self.bench.model.begin_request(0)
        self.until = self.state.position

    def _chunk(self) -> None:
        self._forward(min(self.choice.chunk, self.until - self.state.position))

    def _token(self) -> None:
        self._forward(1)

    def _window(self) -> None:
        self._forward(min(self._room, self.random.randint(2, 12)))

    def _forward(self, size: int) -> None:
        """Read the next `size` tokens; compare the logits, unless a prompt goes on behind them."""
        end = self.state.position + size
        in_prompt = self.bench.machine.state is VramState.PROMPT
        ids = sequence(self.number)[self.state.position : end]
        if in_prompt and end < self.until:
            self.bench.model.forward(self.state, ids, logits="none")
        else:
            self._compare(ids, in_prompt=in_prompt)
        assert self.state.position == end

    def _compare(self, ids: Sequence[int], *, in_prompt: bool) -> None:
        end = self.state.position + len(ids)
        with self._head_faults() if in_prompt else ExitStack():
            logits = self.bench.step(self.state, ids)
            right = right_logits(self.name, self.kv, self.number)[end - 1]
            same_bits(logits, right, f"token {end - 1} of sequence {self.number}")
            self.logits_compared += 1
            self.done["prompt ends"] += in_prompt

    @contextmanager
    def _head_faults(self) -> Iterator[None]:
        """Let the head's way back be troubled; it is lost only if it was out and failed twice."""
        faults = list(self.random.choice(FAULTS))
        lent = self.bench.machine._overlay.head is not HeadPlace.IN
        self.bench.head_faults.coming = list(faults)
        try:
            yield
        except HeadLostError:
            if not lent or len(faults) < 2:
                raise
            assert self.bench.machine.state is VramState.FAILED
            self.done["head lost"] += 1
        self.bench.head_faults.coming = []

    def _cancel(self) -> None:
        self._recover()

    def _recover(self) -> None:
        with self._head_faults():
            self.bench.model.recover()
            assert self.bench.machine.state is VramState.READY

    def _failure(self) -> None:
        if self.random.random() < 0.1:
            self.done["memory fails"] += 1
            self.bench.machine.fail(KernelError("a kernel failed"))
            with pytest.raises(InvariantError, match="failed"):
                self.bench.model.forward(self.state, [1], logits="none")

    def _failing_kernel(self) -> None:
        """Let one operation of a pass fail: nothing of the pass may remain."""
        ops, name, left = self.bench.ops, self.random.choice(OPERATIONS), [self.random.randrange(6)]
        real = getattr(ops, name)

        def failing(*args: Any, **more: Any) -> Any:
            if left[0] == 0:
                raise KernelError(f"{name} failed")
            left[0] -= 1
            return real(*args, **more)

        before, state = self.state.position, self.bench.machine.state
        setattr(ops, name, failing)
        try:
            self._one_pass()
        except KernelError:
            delattr(ops, name)
            self.done[f"kernel failed in {state}"] += 1
            assert self.state.position == before
            self._recover()
        else:
            delattr(ops, name)

    def _one_pass(self) -> None:
        if self.bench.machine.state is VramState.PROMPT:
            self._chunk()
        else:
            self._forward(min(self._room, self.random.randint(1, 8)))

    def _failing_copy(self) -> None:
        faults = self.random.choice(FAULTS)
        if self.trusting:  # Fills on demand are compared in tests only.
            faults = [fault for fault in faults if fault != FLIPPED_BYTE]
        self.bench.expert_faults.coming = list(faults)
        try:
            self._token()
        except (CopyError, OSError):
            self.done["copy failed"] += 1
            self.bench.expert_faults.coming = []
            self._recover()
        self.bench.expert_faults.coming = []

    def _alias(self) -> None:
        mode = self.random.choice(list(HeadAlias))
        at_once = self.bench.machine.set_alias(mode)
        assert at_once or self.bench.machine.state is VramState.PROMPT

    def _others(self) -> None:
        card = self.bench.card
        card.others = self.random.choice((0, 0, 20 * BLOCK, card.total))

    def _resize(self) -> None:
        bench, state = self.bench, self.bench.machine.state
        before, most = bench.arena.end, bench.arena.capacity
        bench.card.refuse_after = self.random.choice((None, None, None, 0, 3))
        least = bench.plan.geometry.rows_start - BLOCK
        result = bench.machine.resize(
            self.random.choice((most, self.random.randrange(least, most + 2 * BLOCK))),
            urgent=self.random.random() < 0.3,
        )
        bench.card.refuse_after = None
        assert result.reached == bench.arena.end
        assert result.done or state is VramState.PROMPT or bench.cache.reserved
        self.done["resize waits"] += not result.done
        self.done["map refused"] += "refused" in result.limitation
        self.done["grown"] += bench.arena.end > before
        self.done["shrunk"] += bench.arena.end < before

    def _reload(self) -> None:
        if self.random.random() < 0.2:
            self.bench.close()
            assert self.bench.card.ours == 0
            self._load()
