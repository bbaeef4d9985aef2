"""Guards against a host engine that only pretends to live in the card's memory.

A prompt that takes memory elsewhere, an expert that is read beside its slot, or bytes that are
used although they are wrong would all go unnoticed where a plan alone is looked at.
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.head_store import HostHeadStore
from stratadesk.engine.vram.overlay import HeadLostError
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import PIN_ALL, HeadAlias, Layout
from stratadesk.engine.vram.slot_states import NO_SLOT
from stratadesk.engine.vram.slot_store import CopyError
from stratadesk.kernels.host import weights
from stratadesk.kernels.host.memory import POISON
from stratadesk.kernels.host.weights import HostWeight
from stratadesk.kernels.host.workspace import HeapWorkspace
from stratadesk.units import KIB, MIB
from tests.vram.host_bench import (
    CHUNK,
    DELTA_NET,
    DENSE,
    EXPERTS,
    FLIPPED_BYTE,
    READ_ERROR,
    TINY,
    HostRig,
    random_ids,
    reference,
    rig,
    same_bits,
)

pytestmark = pytest.mark.usefixtures("one_thread")

MIXTURES = (DELTA_NET, EXPERTS)
PROMPT = random_ids(1, CHUNK + 20)
LARGEST_ALLOCATION = 64 * KIB
LARGE = 512
"""A chunk of which any tensor but the router's is far larger."""


def traced_peak(bench: HostRig, chunk: int, *, on_heap: bool = False) -> int:
    """Bytes that reading a second chunk allocates at most at once, all of Python's included."""
    state, ids = bench.new_state(), random_ids(3, 2 * chunk)
    assert bench.model.begin_request(2 * chunk).chunk == chunk
    bench.model.forward(state, ids[:chunk], logits="none")
    if on_heap:
        bench.ops.workspace = HeapWorkspace()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        bench.model.forward(state, ids[chunk:], logits="none")
        assert bench.machine.state is VramState.PROMPT
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        bench.model.recover()


@pytest.mark.parametrize(
    ("name", "kv", "poison"),
    [
        (DELTA_NET, KvFormat.F16, True),
        (EXPERTS, KvFormat.F16, True),
        (EXPERTS, KvFormat.F32, False),
        (EXPERTS, KvFormat.Q8_0, False),
        (DENSE, KvFormat.F16, False),
    ],
)
def test_a_prompt_takes_no_memory_outside_the_arena(name: str, kv: KvFormat, poison: bool) -> None:
    """The peak counts everything that is alive at once, so no single array can be larger.

    Storing Q8_0 has three arrays of 32 KiB at once.
    """
    fixed = {"alias": HeadAlias.OFF, "prefill_layout": Layout.FIXED}
    large = {"context": 2 * LARGE, "chunk": LARGE, "card": 64 * MIB}
    with rig(name, kv=kv, poison=poison, **large, **fixed) as bench:
        peak = traced_peak(bench, LARGE)
        leaking = traced_peak(bench, LARGE, on_heap=True)
    print(f"{name}, KV {kv}: at most {peak:,} bytes at once; {leaking:,} if it leaked")
    allowed = LARGEST_ALLOCATION * (2 if kv is KvFormat.Q8_0 else 1)
    assert peak < allowed < leaking


@pytest.mark.parametrize("alias", [HeadAlias.ON, HeadAlias.OFF])
@pytest.mark.parametrize("name", MIXTURES)
def test_a_prompt_over_head_and_slots_takes_no_memory_elsewhere(
    name: str, alias: HeadAlias
) -> None:
    with rig(name, alias=alias, prefill_layout=Layout.LOAN, chunk=CHUNK) as bench:
        peak = traced_peak(bench, CHUNK)
        leaking = traced_peak(bench, CHUNK, on_heap=True)
        assert max(phase.bytes_lent for phase in bench.phases) > LARGEST_ALLOCATION
    print(f"{name}, alias {alias}: at most {peak:,} bytes at once; {leaking:,} if it leaked")
    assert peak < LARGEST_ALLOCATION < leaking


def test_counting_many_routed_experts_copies_few_at_a_time() -> None:
    """8,192 tokens of 8 experts are half a MiB as int64, which is what counting works on."""
    with rig(DELTA_NET) as bench:
        experts = np.zeros(8_192 * 8, np.int32)
        tracemalloc.start()
        bench.supply._count(0, experts)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        counted = bench.cache.take_routing()
    assert counted[0, 0] == experts.size
    assert peak < LARGEST_ALLOCATION


def test_nothing_is_allocated_on_the_card_after_loading() -> None:
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        held = bench.card.ours
        for _ in range(2):
            bench.answer(PROMPT, 2)
            assert bench.card.ours == held
        assert {phase.arena_end for phase in bench.phases} == {bench.arena.end}


@pytest.mark.parametrize("alias", [HeadAlias.ON, HeadAlias.OFF])
def test_lent_bytes_are_poisoned_before_the_prompt_and_before_they_come_back(
    alias: HeadAlias, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rig(EXPERTS, alias=alias, prefill_layout=Layout.LOAN, chunk=CHUNK) as bench:
        geometry = bench.plan.geometry
        first = geometry.head.start if alias is HeadAlias.ON else geometry.rows_start
        poisoned: list[bool] = []

        def note() -> None:
            lent = bench.phases[-1]
            end = max(first + lent.bytes_lent, geometry.end_of(lent.slots_lent))
            poisoned.append(bool((bench.arena.view(Span(first, end)) == POISON).all()))

        def noting(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            def noted(*args: Any) -> Any:
                note()
                return real(*args)

            monkeypatch.setattr(owner, name, noted)

        bench.answer(PROMPT, 4)
        noting(HostHeadStore, "restore")
        noting(ExpertCache, "give_back")
        state = bench.new_state()
        choice = bench.model.begin_request(len(PROMPT))
        assert choice.slots_lent
        note()
        bench.model.forward(state, PROMPT[:CHUNK], logits="none")
        assert (bench.arena.view(bench.plan.buffer_span(choice)) != POISON).any()
        bench.step(state, PROMPT[CHUNK:])
        assert poisoned == ([True, True, False] if alias is HeadAlias.ON else [True, True])
        bench.model.end_request()


class Reads:
    """Every address that a matrix product is given for a part of an expert, and what lies there.

    `found` counts them by place and phase.
    """

    def __init__(self, bench: HostRig, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bench = bench
        self._arena = bench.arena.memory.address
        self._parts = {
            id(part): (layer, offset)
            for layer in bench.tier.layers
            for part, offset in zip(layer.parts, bench.tier.offsets(layer), strict=True)
        }
        self.found = Counter[tuple[str, VramState]]()
        real = weights.multiply

        def multiply(weight: HostWeight, addresses: npt.NDArray[np.int64], *rest: Any) -> None:
            if id(weight) in self._parts:
                self._note(weight, addresses.tolist())
            real(weight, addresses, *rest)

        for module in list(sys.modules.values()):
            if getattr(module, "multiply", None) is real:
                monkeypatch.setattr(module, "multiply", multiply)

    def _note(self, weight: HostWeight, addresses: Sequence[int]) -> None:
        layer, offset = self._parts[id(weight)]
        for address in addresses:
            place = self._place(weight, layer.index, address - self._arena - offset, address)
            self.found[place, self._bench.machine.state] += 1

    def _place(self, weight: HostWeight, layer: int, start: int, address: int) -> str:
        bench, geometry = self._bench, self._bench.plan.geometry
        if start == bench.memory.staging.start:
            return "staging slot"
        starts = {geometry.slot(slot).start: slot for slot in range(bench.cache.slots)}
        if start in starts:
            slot = starts[start]
            assert geometry.layer_of(slot) == layer
            assert slot in bench.cache.residency[layer]
            assert slot >= bench.cache.lent
            return "slot"
        expert, rest = divmod(address - weight.data.ctypes.data, weight.matrix_bytes)
        assert rest == 0
        assert 0 <= expert < weight.matrices
        assert bench.cache.residency[layer, expert] == NO_SLOT, "read beside its slot"
        pinned = bench.plan.host.is_pinned(layer, expert)
        return "pinned" if pinned else "pageable"


@pytest.mark.parametrize("alias", [HeadAlias.ON, HeadAlias.OFF])
@pytest.mark.parametrize("name", [DELTA_NET, TINY])
def test_an_expert_is_read_where_it_is_said_to_be(
    name: str, alias: HeadAlias, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Counter[tuple[str, VramState]]()
    for pin, slots in product((0, PIN_ALL), (1, 5, None)):
        with rig(
            name, alias=alias, prefill_layout=Layout.LOAN, pin=pin, expert_cache=slots
        ) as bench:
            reads = Reads(bench, monkeypatch)
            for _ in range(2):
                bench.answer(PROMPT, 3)
            found += reads.found
            if slots is None:
                assert ("pageable", VramState.DECODING) not in reads.found
        monkeypatch.undo()
    print(f"{name}, alias {alias}: {dict(sorted(found.items()))}")
    decoding = {place for place, state in found if state is VramState.DECODING}
    assert decoding == {"slot", "staging slot", "pinned"}
    reading = {place for place, state in found if state is VramState.PROMPT}
    assert reading - {"slot"} == {"pinned", "pageable"}
    assert "slot" in reading or alias is HeadAlias.OFF, "a loan may take all slots there are"


@pytest.mark.parametrize("name", MIXTURES)
def test_the_bytes_in_a_slot_are_the_ones_that_are_used(name: str) -> None:
    """Without checks, other bytes in the slots give other answers: nothing else is read."""
    with rig(name, poison=False) as bench:
        state = bench.new_state()
        bench.read(state, PROMPT)
        token = [PROMPT[0]]
        bench.step(state, token)
        slots = bench.resident()
        assert slots
        other, last = slots[0], slots[-1]
        assert other != last
        for _, _, slot in slots:
            bench.arena.view(bench.plan.geometry.slot(slot))[:] = 0
        wrong = bench.step(state, token)
    right = reference(name).logits([*PROMPT, *token, *token])[-1]
    assert not np.array_equal(wrong, right)


def spoilt(size: int) -> Iterator[int]:
    """Offsets of single bytes to change: both ends, and some between."""
    yield from (0, 1, size // 3, size // 2 + 1, size - 1)


def test_one_wrong_byte_of_the_head_is_caught_before_it_is_used() -> None:
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        state, head = bench.new_state(), bench.plan.geometry.head
        right, position = reference(EXPERTS).logits(PROMPT), 0
        size = bench.model.gguf.data("output.weight").size
        for offset in spoilt(size):
            bench.model.begin_request(0)
            bench.arena.view(Span(head.start, head.start + size))[offset] ^= 1
            with pytest.raises(HeadLostError, match="damaged"):
                bench.step(state, [PROMPT[position]])
            assert bench.machine.state is VramState.FAILED
            bench.model.recover()
            bench.check()
            position += 1
            assert state.position == position, "the token itself was read"
            same_bits(bench.read(state, [PROMPT[position]]), right[position], offset)
            bench.model.end_request()
            position += 1


def test_one_wrong_byte_of_a_slot_is_caught_before_it_is_used() -> None:
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        ids = [*PROMPT, *random_ids(5, 30)]
        right = reference(EXPERTS).logits(ids)
        state = bench.new_state()
        for number in range(6):
            bench.read(state, ids[state.position : state.position + 3])
            bench.step(state, [ids[state.position]])
            held = state.position
            for _, _, slot in bench.resident():
                view = bench.arena.view(bench.plan.geometry.slot(slot))
                offset = list(spoilt(104_000))[number % 5]
                view[offset] ^= 0x40
            with pytest.raises(CopyError, match="instead of"):
                bench.step(state, [ids[held]])
            assert bench.machine.state is VramState.FAILED
            assert state.position == held
            bench.model.recover()
            bench.check()
            same_bits(bench.read(state, [ids[held]]), right[held], held)
            bench.model.end_request()


@pytest.mark.parametrize("fault", [READ_ERROR, FLIPPED_BYTE])
def test_a_head_that_comes_back_wrong_once_is_read_again(fault: str) -> None:
    right = reference(EXPERTS).answer(PROMPT, 3)
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        bench.head_faults.coming = [fault]
        same_bits(bench.answer(PROMPT, 3), right)
        assert bench.head_faults.coming == []


@pytest.mark.parametrize("fault", [READ_ERROR, FLIPPED_BYTE])
def test_an_expert_that_arrives_wrong_once_is_copied_again(fault: str) -> None:
    right = reference(EXPERTS).answer(PROMPT, 3)
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        state = bench.new_state()
        rows = [bench.read(state, PROMPT)]
        for _ in range(3):
            bench.cache.trim(0)
            bench.cache.grow(bench.arena.slots)
            bench.expert_faults.coming = [fault]
            rows.append(bench.step(state, [int(rows[-1].argmax())]))
            assert bench.expert_faults.coming == []
            bench.check()
        same_bits(np.stack(rows), right)
        bench.model.end_request()
