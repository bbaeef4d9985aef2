"""Guards against computing with bytes that are a prompt's: head or slots used while lent.

And against the small lies around it: an illegal change that goes through, an allocation at the
switch, a head taken for right because it was copied.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import HeadLostError, Overlay
from stratadesk.engine.vram.phase_table import NEXT_STATES, HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.slot_states import SlotState
from stratadesk.errors import MemoryShortageError
from stratadesk.kernels.host.memory import POISON
from tests.vram.phase_harness import (
    BLOCK,
    FLIPPED_BYTE,
    GEOMETRY,
    READ_ERROR,
    Rig,
)

S = VramState


@pytest.fixture
def rig() -> Rig:
    return Rig.ready()


def states(events: list[VramPhase]) -> list[VramState]:
    return [phase.state for phase in events]


# Which state follows which


ILLEGAL = [pair for pair in product(S, S) if pair[1] not in NEXT_STATES[pair[0]]]


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_a_change_that_is_not_in_the_table_is_refused(before: S, after: S) -> None:
    rig = Rig()
    rig.machine.state = before
    with pytest.raises(InvariantError, match=f"from {before} to {after}"):
        rig.machine._enter(after)
    assert rig.machine.state is before
    assert rig.events == []


def test_nothing_is_computed_with_a_model_that_is_not_loaded_to_its_end() -> None:
    rig = Rig()
    machine = rig.machine
    while_empty: list[Callable[[], object]] = [machine.head, machine.begin_decode]
    for attempt in while_empty:
        with pytest.raises(InvariantError):
            attempt()
    machine.loading()
    while_loading: list[Callable[[], object]] = [
        machine.head,
        lambda: machine.slot(0),
        machine.end_decode,
        machine.end_prompt,
        machine.begin_decode,
    ]
    for attempt in while_loading:
        with pytest.raises(InvariantError):
            attempt()


def test_a_whole_request_is_told_step_by_step(rig: Rig) -> None:
    del rig.events[:]
    rig.machine.begin_prompt(Layout.ALIAS, 4000)
    rig.machine.end_prompt()
    rig.machine.end_decode()
    assert states(rig.events) == [S.PROMPT, S.RETURNING, S.DECODING, S.READY]
    assert [phase.head for phase in rig.events] == ["out", "returning", "in", "in"]
    assert [phase.bytes_lent for phase in rig.events] == [4000, 4000, 0, 0]
    lent = GEOMETRY.slots_touched(GEOMETRY.head.start + 4000)
    assert [phase.slots_lent for phase in rig.events] == [lent, lent, 0, 0]
    assert [phase.layout for phase in rig.events] == [Layout.ALIAS, Layout.ALIAS, None, None]
    assert {phase.arena_end for phase in rig.events} == {10 * BLOCK}
    assert {phase.head_bytes for phase in rig.events} == {GEOMETRY.head.size}
    assert rig.events[2].return_s > 0
    assert rig.events == sorted(rig.events, key=lambda phase: phase.at)


def test_a_short_read_lends_nothing(rig: Rig) -> None:
    del rig.events[:]
    rig.machine.begin_decode()
    rig.machine.end_decode()
    assert all(phase.slots_lent == 0 and phase.head == "in" for phase in rig.events)
    assert rig.head.reads == 1


# What a prompt gets


def test_layouts_lie_where_they_should(rig: Rig) -> None:
    spans = {}
    for layout in Layout:
        spans[layout] = rig.machine.begin_prompt(layout, 300)
        rig.machine.cancel()
    assert spans == {
        Layout.FIXED: Span(512, 812),
        Layout.LOAN: Span(GEOMETRY.rows_start, GEOMETRY.rows_start + 300),
        Layout.ALIAS: Span(GEOMETRY.head.start, GEOMETRY.head.start + 300),
    }


@pytest.mark.parametrize(
    ("layout", "buffer_bytes", "lent", "head"),
    [
        (Layout.FIXED, 512, 0, HeadPlace.IN),
        (Layout.LOAN, 1, 1, HeadPlace.IN),
        (Layout.LOAN, 256, 1, HeadPlace.IN),
        (Layout.LOAN, 257, 2, HeadPlace.IN),
        (Layout.ALIAS, GEOMETRY.head.size, 0, HeadPlace.OUT),
        (Layout.ALIAS, GEOMETRY.head.size + 1, 1, HeadPlace.OUT),
        (Layout.ALIAS, 9 * BLOCK, 16, HeadPlace.OUT),
    ],
)
def test_every_slot_that_the_buffers_touch_is_lent(
    rig: Rig, layout: Layout, buffer_bytes: int, lent: int, head: HeadPlace
) -> None:
    rig.machine.begin_prompt(layout, buffer_bytes)
    assert rig.cache.lent == rig.events[-1].slots_lent == lent
    assert rig.events[-1].head is head
    assert (rig.cache.residency[rig.cache.residency >= 0] >= lent).all()


@pytest.mark.parametrize(
    ("layout", "buffer_bytes"), [(Layout.FIXED, 513), (Layout.LOAN, 7937), (Layout.ALIAS, 9217)]
)
def test_buffers_that_do_not_fit_change_nothing(
    rig: Rig, layout: Layout, buffer_bytes: int
) -> None:
    told = len(rig.events)
    with pytest.raises(MemoryShortageError, match=f"layout {layout} has"):
        rig.machine.begin_prompt(layout, buffer_bytes)
    assert rig.machine.state is S.READY
    assert len(rig.events) == told
    rig.machine.check()


def test_the_switch_allocates_nothing(rig: Rig) -> None:
    before, ours = list(rig.allocations), rig.card.ours
    for layout in Layout:
        rig.machine.begin_prompt(layout, 400)
        assert rig.card.ours == ours
        rig.machine.end_prompt()
        rig.machine.end_decode()
    assert rig.allocations == before


def test_what_is_lent_is_poisoned_before_and_after(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = rig.machine
    span = machine.begin_prompt(Layout.ALIAS, 2000)
    assert (rig.arena.view(span) == POISON).all()
    rig.arena.view(span)[:] = 1
    lent_end = GEOMETRY.end_of(rig.cache.lent)
    seen: list[bool] = []

    def look(_view: object) -> None:
        seen.append(bool((rig.arena.view(Span(span.start, lent_end)) == POISON).all()))
        rig.arena.view(GEOMETRY.head)[:1100] = rig.head.data

    monkeypatch.setattr(rig.head, "read_into", look)
    machine.end_prompt()
    assert seen == [True]
    assert (rig.arena.view(Span(GEOMETRY.rows_start, lent_end)) == POISON).all()


def test_copies_under_way_end_before_the_buffers_are_the_prompts(rig: Rig) -> None:
    rig.machine.begin_prompt(Layout.LOAN, 2000)
    rig.waiting.extend(rig.machine.end_prompt())
    rig.start_copy()
    assert rig.cache.writing()
    rig.machine.end_decode()
    span = rig.machine.begin_prompt(Layout.LOAN, 2000)
    assert rig.cache.writing() == []
    assert (rig.arena.view(span) == POISON).all()


def test_a_copy_that_does_not_end_fails_the_prompt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.machine.begin_prompt(Layout.LOAN, 2000)
    rig.waiting.extend(rig.machine.end_prompt())
    rig.start_copy()
    slot = rig.flights[0].reservation.slot
    rig.machine.end_decode()
    monkeypatch.setattr(rig, "flights", [])
    with pytest.raises(InvariantError, match=rf"still writing into slots \[{slot}\]"):
        rig.machine.begin_prompt(Layout.LOAN, 2000)
    assert rig.machine.state is S.FAILED


# Nothing lent is used


def test_neither_head_nor_lent_slots_are_given_out_while_a_prompt_has_them(rig: Rig) -> None:
    rig.machine.begin_prompt(Layout.ALIAS, 2000)
    lent = rig.cache.lent
    with pytest.raises(InvariantError, match="the head is out while prompt"):
        rig.machine.head()
    for number in (0, lent - 1, rig.cache.slots):
        with pytest.raises(InvariantError, match=f"slot {number} is not the cache's"):
            rig.machine.slot(number)
    assert rig.machine.slot(lent) == GEOMETRY.slot(lent)
    rig.machine.end_prompt()
    assert rig.machine.head() == GEOMETRY.head
    assert rig.machine.slot(0) == GEOMETRY.slot(0)


def test_a_map_that_still_names_a_lent_slot_is_no_way_round_the_guard(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lend_in_name_only(cache: ExpertCache, count: int) -> None:
        cache._table.lent = count

    monkeypatch.setattr(ExpertCache, "lend", lend_in_name_only)
    rig.machine.begin_prompt(Layout.LOAN, 300)
    with pytest.raises(InvariantError, match="slots 0 to 1 are lent"):
        rig.machine.slot(int(rig.cache.residency[rig.cache.residency < 2][-1]))
    with pytest.raises(InvariantError, match="LENT"):
        rig.machine.check()


def test_a_cache_that_lends_nothing_fails_the_prompt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExpertCache, "lend", lambda *_: None)
    with pytest.raises(InvariantError, match="the cache has 0 of 16 lent"):
        rig.machine.begin_prompt(Layout.LOAN, 300)
    assert rig.machine.state is S.FAILED


# The head comes back right or not at all


@pytest.mark.parametrize("fault", [READ_ERROR, FLIPPED_BYTE])
def test_one_failed_return_is_tried_again(rig: Rig, fault: str) -> None:
    rig.machine.begin_prompt(Layout.ALIAS, 2000)
    rig.head_faults.coming = [fault]
    rig.machine.end_prompt()
    assert rig.machine.state is S.DECODING
    rig.check_bytes()


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([READ_ERROR, READ_ERROR], "in 2 tries: the disk is gone."),
        ([READ_ERROR, FLIPPED_BYTE], r"in 2 tries: its checksum is [0-9a-f]{16} instead of"),
        ([FLIPPED_BYTE, FLIPPED_BYTE], r"in 2 tries: its checksum is [0-9a-f]{16} instead of"),
    ],
)
@pytest.mark.parametrize("end", ["end_prompt", "cancel"])
def test_a_head_lost_twice_stops_everything(
    rig: Rig, faults: list[str], sentence: str, end: str
) -> None:
    rig.machine.begin_prompt(Layout.ALIAS, 2000)
    rig.head_faults.coming = list(faults)
    with pytest.raises(HeadLostError, match=sentence):
        getattr(rig.machine, end)()
    assert rig.events[-1].state is S.FAILED
    assert rig.events[-1].why == rig.machine.why
    for ask in (rig.machine.head, lambda: rig.machine.slot(15)):
        with pytest.raises(InvariantError, match="must not be used while failed: The output head"):
            ask()
    rig.machine.reset()
    assert rig.machine.state is S.READY
    assert rig.machine.why == ""
    rig.check_bytes()


def test_a_head_wrong_after_loading_is_found_before_the_first_use() -> None:
    rig = Rig()
    rig.head_faults.coming = [FLIPPED_BYTE]
    with pytest.raises(HeadLostError, match="damaged"):
        rig.load()
    assert states(rig.events) == [S.LOADING, S.FAILED]
    rig.machine.reset()
    assert states(rig.events[2:]) == [S.EMPTY]
    assert rig.card.ours == 0
    with pytest.raises(InvariantError, match="released"):
        rig.machine.loading()


def test_a_byte_that_changes_after_the_return_is_found_when_uses_are_checked() -> None:
    rig = Rig(recheck=True)
    rig.load()
    assert rig.machine.head() == GEOMETRY.head
    rig.arena.view(GEOMETRY.head)[731] ^= 4
    with pytest.raises(HeadLostError, match="damaged"):
        rig.machine.head()
    assert rig.machine.state is S.FAILED
    rig.machine.reset()
    assert rig.machine.head() == GEOMETRY.head
    rig.check_bytes()


def test_without_the_copy_uses_that_are_checked_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(recheck=True)
    rig.load()
    rig.machine.begin_prompt(Layout.ALIAS, 2000)
    monkeypatch.setattr(Overlay, "_trouble_returning", lambda _: "")
    rig.machine.end_prompt()
    with pytest.raises(HeadLostError, match="damaged"):
        rig.machine.head()


# However a prompt ends


def test_a_cancelled_prompt_gets_back_what_was_there(rig: Rig) -> None:
    before = rig.cache.residency.copy()
    rig.machine.begin_prompt(Layout.ALIAS, 4000)
    rig.waiting.extend(rig.machine.cancel())
    assert states(rig.events[-2:]) == [S.CANCELLING, S.READY]
    while rig.waiting:
        rig.start_copy()
        assert rig.land(rig.flights[0])
    assert ((rig.cache.residency >= 0) == (before >= 0)).all()
    rig.check_bytes()


def test_a_prompts_own_routing_decides_what_comes_back(rig: Rig) -> None:
    absent = np.argwhere(rig.cache.residency < 0)[0]
    counts = np.zeros(rig.cache.residency.shape, np.int64)
    counts[tuple(absent)] = 100
    rig.machine.begin_prompt(Layout.LOAN, 4000)
    first = rig.machine.end_prompt(counts)[: GEOMETRY.layers]
    assert absent.tolist() in [[item.layer, item.expert] for item in first]


def test_cancel_while_decoding_ends_ready_and_at_rest_does_nothing(rig: Rig) -> None:
    rig.machine.begin_decode()
    rig.machine.cancel()
    assert states(rig.events[-2:]) == [S.CANCELLING, S.READY]
    told = len(rig.events)
    assert rig.machine.cancel() == ()
    assert len(rig.events) == told


def test_cancelled_loading_gives_all_memory_back() -> None:
    rig = Rig()
    rig.machine.loading()
    rig.machine.cancel()
    assert rig.machine.state is S.EMPTY
    assert rig.card.ours == 0


@pytest.mark.parametrize("state", [S.READY, S.PROMPT, S.DECODING])
def test_after_a_failure_nothing_is_trusted_until_a_reset(rig: Rig, state: S) -> None:
    if state is S.PROMPT:
        rig.machine.begin_prompt(Layout.ALIAS, 4000)
    elif state is S.DECODING:
        rig.machine.begin_decode()
    reads = rig.head.reads
    rig.machine.fail(RuntimeError("a kernel failed"))
    rig.machine.fail("something later")
    assert rig.machine.why == "RuntimeError: a kernel failed"
    with pytest.raises(InvariantError, match="while failed: RuntimeError: a kernel failed"):
        rig.machine.head()
    assert rig.machine.cancel() == ()
    rig.machine.reset()
    assert rig.machine.state is S.READY
    assert rig.head.reads == reads + 1
    assert rig.cache.states()[SlotState.EMPTY] == rig.cache.slots == 16
    rig.machine.check()
