"""Guards against an expert that is called resident although a byte of it is wrong."""

import pytest

from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.slot_states import SlotState
from stratadesk.engine.vram.slot_store import CopyError, SlotStore
from stratadesk.kernels.host.memory import POISON
from tests.vram.phase_harness import FLIPPED_BYTE, GEOMETRY, READ_ERROR, Rig

SLOT, LAYER, EXPERT = 4, 1, 3
TWICE_WRONG = ([READ_ERROR, FLIPPED_BYTE], [READ_ERROR, READ_ERROR])


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.load()
    return made


def test_parts_lie_at_their_offsets_and_nothing_else_is_touched(rig: Rig) -> None:
    rig.store.fill(SLOT, LAYER, EXPERT)
    start = GEOMETRY.slot(SLOT).start
    first, second = rig.experts.right(LAYER, EXPERT)
    assert (rig.arena.view(Span(start, start + 120)) == first.data).all()
    assert (rig.arena.view(Span(start + 120, start + 128)) == POISON).all()
    assert (rig.arena.view(Span(start + 128, start + 512)) == second.data).all()
    others = (GEOMETRY.slot(SLOT - 1), GEOMETRY.slot(SLOT + 1))
    assert all((rig.arena.view(span) == POISON).all() for span in others)


@pytest.mark.parametrize("fault", [READ_ERROR, FLIPPED_BYTE])
def test_one_failed_copy_is_made_again(rig: Rig, fault: str) -> None:
    rig.expert_faults.coming = [fault]
    rig.store.refill(SLOT, LAYER, EXPERT)
    rig.store.verify(SLOT, LAYER, EXPERT)


@pytest.mark.parametrize("faults", TWICE_WRONG)
def test_two_failed_copies_are_an_error_with_names(rig: Rig, faults: list[str]) -> None:
    rig.expert_faults.coming = list(faults)
    with pytest.raises(CopyError, match="Expert 3 of layer 1 did not arrive in slot 4 in 2 tries"):
        rig.store.refill(SLOT, LAYER, EXPERT)


def test_every_wrong_byte_in_a_slot_is_found_before_use(rig: Rig) -> None:
    rig.store.fill(SLOT, LAYER, EXPERT)
    slot = rig.arena.view(GEOMETRY.slot(SLOT))
    for place in (*range(120), *range(128, slot.size)):
        slot[place] ^= 1 << place % 8
        with pytest.raises(CopyError, match=r"slot 4 has checksum [0-9a-f]{16} instead of"):
            rig.store.verify(SLOT, LAYER, EXPERT)
        slot[place] ^= 1 << place % 8
    rig.store.verify(SLOT, LAYER, EXPERT)


def test_refills_are_checked_even_where_fills_are_not(rig: Rig) -> None:
    store = SlotStore(rig.arena, rig.experts)
    rig.expert_faults.coming = [FLIPPED_BYTE]
    store.fill(SLOT, LAYER, EXPERT)
    with pytest.raises(CopyError):
        store.verify(SLOT, LAYER, EXPERT)
    rig.expert_faults.coming = [READ_ERROR, FLIPPED_BYTE]
    with pytest.raises(CopyError):
        store.refill(SLOT, LAYER, EXPERT)


@pytest.mark.parametrize("faults", TWICE_WRONG)
def test_a_wrong_fill_never_enters_the_map(rig: Rig, faults: list[str]) -> None:
    rig.expert_faults.coming = list(faults)
    with pytest.raises(CopyError):
        rig.use(LAYER, [EXPERT])
    assert rig.cache.residency[LAYER, EXPERT] < 0
    assert rig.cache.states()[SlotState.EMPTY] == rig.cache.slots
    rig.use(LAYER, [EXPERT])
    assert rig.cache.residency[LAYER, EXPERT] >= 0
    rig.check_bytes()


@pytest.mark.parametrize("faults", TWICE_WRONG)
def test_a_wrong_refill_never_enters_the_map(rig: Rig, faults: list[str]) -> None:
    rig.fill_all()
    rig.machine.begin_prompt(Layout.LOAN, 300)
    rig.waiting.extend(rig.machine.end_prompt())
    returning = rig.waiting[0]
    rig.start_copy()
    rig.expert_faults.coming = list(faults)
    with pytest.raises(CopyError):
        rig.land(rig.flights[0])
    assert rig.cache.residency[returning.layer, returning.expert] < 0
    rig.machine.check()
    rig.check_bytes()
