"""Guards against a failure, or a change of mind, that leaves the engine unable to answer, or wrong.

After anything that goes wrong the memory is ready again with head and map restored, the state
holds what was computed wholly, and the next answer is the one that a fresh model gives.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.loading import load_model
from stratadesk.engine.session import Session
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import HeadLostError
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.slot_states import SlotState
from stratadesk.engine.vram.slot_store import CopyError
from stratadesk.units import KIB, MIB
from tests.conftest import DATA_DIR
from tests.vram.host_bench import (
    CHUNK,
    CONTEXT,
    DELTA_NET,
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

IDS = random_ids(1, 2 * CHUNK + 12)
PROMPT = IDS[: CHUNK + 6]
BLOCK = 4 * KIB


class KernelError(RuntimeError):
    """What a failing operation raises."""


@contextmanager
def failing(bench: HostRig, number: int) -> Iterator[list[int]]:
    """Let the operation `number` of those that follow fail; yields how many were asked for."""
    ops, asked = bench.ops, [0]
    names = ["embed", "linear", "route", "experts", "rms_norm", "attention", "add", "add_gated"]
    names += ["causal_convolution", "delta_rule", "rms_norm_silu_gate", "rotate_halves"]

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **more: Any) -> Any:
            asked[0] += 1
            if asked[0] == number:
                raise KernelError("a kernel failed")
            return real(*args, **more)

        return operation

    for name in names:
        setattr(ops, name, guarded(getattr(ops, name)))
    try:
        yield asked
    finally:
        for name in names:
            delattr(ops, name)


@pytest.mark.parametrize("alias", [HeadAlias.ON, HeadAlias.OFF])
@pytest.mark.parametrize(("name", "stride"), [(DELTA_NET, 8), (EXPERTS, 3)])
def test_a_chunk_that_fails_anywhere_leaves_what_was_read_before(
    name: str, stride: int, alias: HeadAlias
) -> None:
    """The second chunk fails at one operation after the other; then it is read again."""
    ids = IDS[: CHUNK + 9]
    right = reference(name).logits(ids)[-1]
    with rig(name, alias=alias, prefill_layout=Layout.LOAN, chunk=CHUNK) as bench:
        for number in count(1, stride):
            state = bench.new_state()
            bench.model.begin_request(len(ids))
            bench.model.forward(state, ids[:CHUNK], logits="none")
            with failing(bench, number) as asked:
                try:
                    bench.step(state, ids[CHUNK:])
                except KernelError:
                    bench.model.recover()
            if state.position == len(ids):
                break
            assert state.position == CHUNK
            assert bench.machine.state is VramState.READY
            bench.check()
            same_bits(bench.read(state, ids[CHUNK:]), right, f"operation {number}")
            bench.model.end_request()
    print(f"{name}, alias {alias}: failed at operations 1, {1 + stride} … of {asked[0]}")
    assert number > asked[0] > 20


@pytest.mark.parametrize(("name", "stride"), [(DELTA_NET, 8), (EXPERTS, 3)])
def test_a_token_that_fails_anywhere_is_not_in_the_answer(name: str, stride: int) -> None:
    ids = IDS[: CHUNK + 40]
    right = reference(name).logits(ids)
    with rig(name, alias=HeadAlias.ON) as bench:
        state = bench.new_state()
        bench.read(state, ids[:CHUNK])
        for number in count(1, stride):
            before = state.position
            with failing(bench, number) as asked:
                try:
                    bench.step(state, [ids[before]])
                    break
                except KernelError:
                    bench.model.recover()
            assert state.position == before
            bench.check()
            bench.model.begin_request(0)
            same_bits(bench.step(state, [ids[before]]), right[before], f"operation {number}")
    assert number > asked[0] > 20


def test_a_session_that_fails_is_dropped_and_the_model_is_ready() -> None:
    right = reference(DELTA_NET).logits(PROMPT)[-1]
    with rig(DELTA_NET, alias=HeadAlias.ON) as bench:
        session = Session(bench.model)
        session.restart()
        session.begin(len(PROMPT))
        session.read(PROMPT[:CHUNK], logits=False)
        with (
            pytest.raises(KernelError),
            session.dropped_on_failure("it failed"),
            failing(bench, 7),
        ):
            session.read(PROMPT[CHUNK:], logits=True)
        assert not session.ids
        assert session.lost == "it failed"
        assert bench.machine.state is VramState.READY
        session.restart()
        session.begin(len(PROMPT))
        session.read(PROMPT, logits=True)
        session.end(cancelled=False)
        assert session.logits is not None
        same_bits(session.logits, right)
        bench.check()


def read_tokens(bench: HostRig) -> None:
    for token in IDS:
        bench.step(bench.new_state(), [token])


@pytest.mark.parametrize("error", [CopyError("it did not arrive"), KernelError(), MemoryError()])
def test_when_one_fill_fails_no_other_is_left_half_done(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot that stays FILLING would refuse every later loan that takes it."""
    right = reference(EXPERTS).answer(PROMPT, 2)
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        real, calls = bench.supply._store.fill, count(1)

        def fill(*args: Any) -> None:
            if next(calls) == 2:
                raise error
            real(*args)

        monkeypatch.setattr(bench.supply._store, "fill", fill)
        bench.model.begin_request(0)
        with pytest.raises(type(error)):
            read_tokens(bench)
        bench.model.recover()
        assert not bench.cache.states()[SlotState.FILLING]
        assert not bench.cache.writing()
        same_bits(bench.answer(PROMPT, 2), right)


@pytest.mark.parametrize("error", [CopyError("it did not arrive"), KernelError()])
def test_a_refill_that_fails_gives_its_slot_up(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = reference(EXPERTS).answer(PROMPT, 3)
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        bench.answer(PROMPT, 3)
        state = bench.new_state()
        token = int(bench.read(state, PROMPT).argmax())

        def refill(*_: Any) -> None:
            raise error

        monkeypatch.setattr(bench.supply._store, "refill", refill)
        held = state.position
        with pytest.raises(type(error)):
            bench.step(state, [token])
        monkeypatch.undo()
        bench.model.recover()
        bench.check()
        assert bench.cache.counters.refills_abandoned == 1
        rest = [token, int(right[1].argmax())][state.position - held :]
        same_bits(bench.read(state, rest), right[2], "read on")
        bench.model.end_request()
        same_bits(bench.answer(PROMPT, 3), right)


def test_a_lost_head_stops_all_compute_until_it_is_back() -> None:
    right = reference(EXPERTS).logits(IDS)
    with rig(EXPERTS, alias=HeadAlias.ON) as bench:
        state = bench.new_state()
        bench.head_faults.coming = [FLIPPED_BYTE, READ_ERROR]
        with pytest.raises(HeadLostError, match="2 tries"):
            bench.read(state, PROMPT)
        assert bench.machine.state is VramState.FAILED
        assert bench.machine.why
        for attempt in (
            lambda: bench.model.begin_request(3),
            lambda: bench.model.begin_request(0),
            lambda: bench.model.forward(state, IDS[:1], logits="none"),
            lambda: bench.model.forward(state, IDS[:1], logits="last"),
        ):
            with pytest.raises(InvariantError):
                attempt()
        bench.head_faults.coming = [READ_ERROR, READ_ERROR]
        with pytest.raises(HeadLostError):
            bench.model.recover()
        assert bench.machine.state is VramState.FAILED
        bench.model.recover()
        bench.check()
        assert state.position == len(PROMPT)
        next_ids = IDS[len(PROMPT) : len(PROMPT) + 3]
        same_bits(bench.read(state, next_ids), right[state.position - 1])
        bench.model.end_request()


def test_nothing_is_computed_after_a_failure_or_a_close() -> None:
    """Even where no slot and no head would be asked for."""
    bench = HostRig(EXPERTS, expert_cache=1)
    state = bench.new_state()
    bench.machine.fail("something")
    with pytest.raises(InvariantError, match="while the memory is failed"):
        bench.model.forward(state, IDS[:2], logits="none")
    assert state.position == 0
    bench.model.recover()
    bench.close()
    with pytest.raises(InvariantError, match="while the memory is empty"):
        bench.model.forward(state, IDS[:2], logits="none")


@pytest.mark.parametrize("faults", [[], [READ_ERROR, READ_ERROR]])
def test_closing_in_mid_prompt_gives_all_memory_back(faults: list[str]) -> None:
    bench = HostRig(EXPERTS, alias=HeadAlias.ON)
    bench.model.begin_request(len(PROMPT))
    bench.model.forward(bench.new_state(), PROMPT[:CHUNK], logits="none")
    bench.head_faults.coming = list(faults)
    if faults:
        with pytest.raises(HeadLostError):
            bench.close()
    else:
        bench.close()
    assert bench.card.ours == 0
    assert bench.machine.state is VramState.EMPTY


def test_a_refused_block_changes_no_answer_and_no_size() -> None:
    right = reference(EXPERTS).answer(PROMPT, 3)
    with rig(EXPERTS, alias=HeadAlias.OFF, prefill_layout=Layout.LOAN, block_bytes=BLOCK) as bench:
        full = bench.arena.end
        bench.machine.resize(bench.plan.geometry.end_of(5) + BLOCK)
        state, shrunk = bench.new_state(), bench.arena.end
        rows = [bench.read(state, PROMPT)]
        rows.append(bench.step(state, [int(rows[-1].argmax())]))
        bench.card.refuse_after = 2
        result = bench.machine.resize(full)
        assert (result.done, result.reached) == (True, shrunk)
        assert "refused" in result.limitation
        assert bench.cache.slots == 5
        bench.card.refuse_after = None
        rows.append(bench.step(state, [int(rows[-1].argmax())]))
        assert bench.machine.resize(full).reached == full
        rows.append(bench.step(state, [int(rows[-1].argmax())]))
        bench.model.end_request()
        bench.check()
        same_bits(np.stack(rows), right)


@pytest.mark.parametrize("alias", list(HeadAlias))
@pytest.mark.parametrize("name", [DELTA_NET, TINY])
def test_prompts_fit_an_arena_that_was_made_smaller(name: str, alias: HeadAlias) -> None:
    """The plan made when loading lends more than is left; that of a request must not."""
    right = reference(name).answer(IDS, 1)
    paths = set()
    with rig(name, alias=alias, prefill_layout=Layout.LOAN, block_bytes=BLOCK) as bench:
        for slots in range(bench.plan.slots, -1, -4):
            bench.machine.resize(bench.plan.geometry.end_of(slots) + BLOCK)
            assert bench.cache.slots <= slots
            same_bits(bench.answer(IDS, 1), right, f"{slots} slots")
            choice = bench.memory.request(len(IDS))
            paths.add((choice.path, choice.layout, choice.slots_lent))
    print(f"{name}, alias {alias}: {sorted(map(str, paths))}")
    assert ("decode", None, 0) in paths
    assert len(paths) > 1


@pytest.mark.parametrize("block", [BLOCK, 64 * KIB, 2 * MIB])
@pytest.mark.parametrize("asked", [1, 2, 5, None])
def test_there_are_as_many_slots_as_were_asked_for(asked: int | None, block: int) -> None:
    """Whole blocks may hold more; `--expert-cache 1` means that none is used."""
    with rig(TINY, card=16 * MIB, expert_cache=asked, block_bytes=block) as bench:
        slots = {1: 0, None: 16}.get(asked, asked)
        assert bench.cache.slots == bench.plan.slots == slots
        bench.machine.resize(bench.card.total)
        assert bench.cache.slots == slots
        bench.check()


def test_without_a_card_no_expert_is_copied() -> None:
    settings = EngineSettings(max_context=CONTEXT)
    path = DATA_DIR / "models" / f"{TINY}.gguf"
    model = load_model(path, settings, lambda _: None)
    model.forward(model.new_state(), PROMPT, logits="last")
    memory = model.memory
    assert memory.cache.slots == 0
    assert memory.cache.counters.bytes_filled == memory.cache.counters.bytes_refilled == 0
    assert memory.arena.capacity == memory.arena.end, "a range as large as all RAM"
    model.close()


def test_many_tokens_can_follow_a_prompt_at_once() -> None:
    """The decode scratch holds a window of them, whatever the prompt's chunk was."""
    right = reference(EXPERTS).logits(IDS)
    with rig(EXPERTS, alias=HeadAlias.ON, chunk=CHUNK) as bench:
        state = bench.new_state()
        bench.read(state, IDS[:CHUNK])
        same_bits(bench.step(state, IDS[CHUNK:]), right[-1])
        bench.model.end_request()


def test_a_cancelled_prompt_does_not_count_for_the_next_one() -> None:
    with rig(EXPERTS, alias=HeadAlias.ON, chunk=CHUNK) as bench:
        for _ in range(2):
            bench.model.begin_request(len(PROMPT))
            bench.model.forward(bench.new_state(), PROMPT[:CHUNK], logits="none")
            bench.model.recover()
        assert bench.cache.take_routing().sum() == 0
