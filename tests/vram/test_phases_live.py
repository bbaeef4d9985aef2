"""Guards against a reserve or an alias "applied" that was not, or under a running prompt."""

import pytest

from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.phase_table import VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.resizing import WAITING, floor_of
from stratadesk.engine.vram.slot_states import SlotState
from tests.vram.phase_harness import (
    BLOCK,
    GEOMETRY,
    Rig,
)

S = VramState


@pytest.fixture
def rig() -> Rig:
    return Rig.ready()


def states(events: list[VramPhase]) -> list[VramState]:
    return [phase.state for phase in events]


def test_a_smaller_arena_keeps_what_is_in_it(rig: Rig) -> None:
    rig.machine.begin_decode()
    before = rig.cache.residency.copy()
    result = rig.machine.resize(7 * BLOCK + 500)
    assert (result.done, result.reached, result.limitation) == (True, 7 * BLOCK, "")
    assert result.slots == rig.arena.slots < 16
    kept = (before >= 0) & (before < result.slots)
    assert ((rig.cache.residency == before) == (kept | (before < 0))).all()
    assert rig.card.ours == 7 * BLOCK
    assert states(rig.events[-2:]) == [S.RESIZING, S.DECODING]
    assert rig.events[-1].resize == result
    rig.check_bytes()


def test_a_larger_arena_offers_empty_slots(rig: Rig) -> None:
    result = rig.machine.resize(13 * BLOCK)
    assert (result.reached, result.limitation) == (13 * BLOCK, "")
    assert rig.cache.states()[SlotState.EMPTY] == result.slots - 16 > 0
    rig.check_bytes()


def test_the_floor_is_kept_and_named(rig: Rig) -> None:
    floor = floor_of(GEOMETRY, GEOMETRY.head.start, 1500, 4)
    result = rig.machine.resize(0)
    assert floor.usual <= result.reached < floor.usual + BLOCK
    assert result.limitation.startswith(
        "fixed regions, a small prompt's buffers and 4 slots end at"
    )
    relaxed = rig.machine.resize(0, relaxed=True)
    assert floor.least <= relaxed.reached < result.reached
    assert relaxed.limitation.startswith("fixed regions and a small prompt's buffers end at")
    assert rig.machine.begin_prompt(Layout.ALIAS, 1500).end <= rig.arena.end


def test_an_arena_already_below_the_floor_is_not_made_larger() -> None:
    rig = Rig(end=4 * BLOCK, floor_slots=30)
    rig.load()
    assert rig.machine.resize(3 * BLOCK).reached == 4 * BLOCK


def test_a_refused_block_is_a_limitation_and_leaves_the_old_size(rig: Rig) -> None:
    rig.card.others = 8 * BLOCK
    result = rig.machine.resize(14 * BLOCK)
    assert (result.done, result.reached) == (True, 10 * BLOCK)
    assert result.limitation.startswith("The card refused 1.0 KiB")
    assert rig.machine.state is S.READY
    rig.check_bytes()


def test_the_end_of_the_range_is_a_limitation(rig: Rig) -> None:
    assert rig.machine.resize(19 * BLOCK).limitation == "the address range ends at 16.0 KiB"


def test_one_plain_allocation_says_that_it_cannot_be_resized() -> None:
    rig = Rig(ranges=False)
    rig.load()
    rig.fill_all()
    result = rig.machine.resize(7 * BLOCK)
    assert result.reached == 10 * BLOCK
    assert "fixed until the model is loaded again" in result.limitation
    rig.check_bytes()


def test_asked_during_a_prompt_it_waits_for_the_refill(rig: Rig) -> None:
    rig.machine.begin_prompt(Layout.LOAN, 2000)
    waits = rig.machine.resize(7 * BLOCK)
    assert (waits.done, waits.reached, waits.limitation) == (False, 10 * BLOCK, WAITING)
    rig.waiting.extend(rig.machine.end_prompt())
    while rig.waiting:
        assert rig.machine.safe_point() is None
        rig.start_copy()
        rig.land(rig.flights[0])
    done = rig.machine.safe_point()
    assert done is not None
    assert (done.done, done.reached) == (True, 7 * BLOCK)
    assert rig.machine.safe_point() is None


def test_an_urgent_wish_waits_for_the_prompt_alone(rig: Rig) -> None:
    rig.machine.begin_prompt(Layout.LOAN, 2000)
    rig.machine.resize(8 * BLOCK)
    assert not rig.machine.resize(7 * BLOCK, urgent=True).done
    rig.waiting.extend(rig.machine.end_prompt())
    rig.start_copy()
    done = rig.machine.safe_point()
    assert done is not None
    assert done.reached == 7 * BLOCK
    rig.machine.check()


@pytest.mark.parametrize("end", ["cancel", "end_decode"])
def test_what_waited_is_done_when_the_request_is_over(rig: Rig, end: str) -> None:
    rig.machine.begin_prompt(Layout.LOAN, 2000)
    rig.machine.resize(7 * BLOCK)
    if end == "end_decode":
        rig.machine.end_prompt()
    getattr(rig.machine, end)()
    assert states(rig.events[-3:]) == [S.READY, S.RESIZING, S.READY]
    assert rig.arena.end == 7 * BLOCK
    assert rig.events[-1].resize is not None


def test_a_failed_machine_is_not_resized(rig: Rig) -> None:
    rig.machine.fail("gone")
    with pytest.raises(InvariantError, match="cannot be resized while it is failed"):
        rig.machine.resize(7 * BLOCK)


# The alias, while running


def test_the_alias_changes_at_the_next_prompt(rig: Rig) -> None:
    assert rig.machine.set_alias(HeadAlias.ON)
    rig.machine.begin_prompt(Layout.ALIAS, 400)
    assert not rig.machine.set_alias(HeadAlias.OFF)
    assert (rig.machine.alias, rig.machine.alias_next) == (HeadAlias.ON, HeadAlias.OFF)
    rig.machine.end_prompt()
    assert rig.machine.alias is HeadAlias.OFF
    rig.machine.end_decode()
    with pytest.raises(InvariantError, match="although the alias is off"):
        rig.machine.begin_prompt(Layout.ALIAS, 400)
    assert rig.machine.state is S.READY
