"""Guards against a cache that loses an expert or a slot, or cannot say what it did.

Orders of steps and bytes are the subject of test_interleavings; here it is decisions and figures.
"""

from collections.abc import Callable

import numpy as np
import pytest

from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.slot_states import NO_SLOT, PlacementKind, SlotState
from tests.vram.cache_helpers import count, kinds, make, refill, resident, use

HIT, FILL, BYPASS = PlacementKind.HIT, PlacementKind.FILL, PlacementKind.BYPASS
EMPTY, FILLING, LENT = SlotState.EMPTY, SlotState.FILLING, SlotState.LENT
RESERVED, UNMAPPED = SlotState.RESERVED, SlotState.UNMAPPED


def test_a_miss_is_filled_and_then_hit() -> None:
    cache = make(2)
    assert kinds(use(cache, 3)) == [FILL]
    (hit,) = use(cache, 3)
    assert hit.kind is HIT
    assert hit.slot == cache.residency[0, 3]


def test_an_expert_is_not_resident_before_its_copy_is_complete() -> None:
    cache = make(2)
    cache.begin_step()
    (fill,) = cache.resolve(0, [3])
    assert resident(cache) == set()
    assert count(cache, FILLING) == 1
    assert cache.writing() == [fill.slot]
    assert cache.filled(fill)
    assert resident(cache) == {3}
    assert cache.writing() == []


def test_placements_come_in_the_order_of_the_question() -> None:
    cache = make(3)
    use(cache, 5, 6)
    placements = use(cache, 6, 1, 5)
    assert [placement.expert for placement in placements] == [6, 1, 5]
    assert kinds(placements) == [HIT, FILL, HIT]


def test_the_expert_unused_for_longest_is_replaced() -> None:
    cache = make(3)
    for expert in (0, 1, 2, 0, 3):
        use(cache, expert)
    assert resident(cache) == {0, 2, 3}


def test_hits_of_a_step_are_not_replaced_by_its_misses() -> None:
    cache = make(2)
    use(cache, 0, 1)
    placements = use(cache, 2, 3, 0)
    assert kinds(placements) == [FILL, BYPASS, HIT]
    assert resident(cache) == {0, 2}


def test_all_layers_of_a_step_are_protected_until_the_next() -> None:
    cache = make(1)
    cache.begin_step()
    (fill,) = cache.resolve(0, [0])
    cache.filled(fill)
    assert kinds(cache.resolve(0, [1])) == [BYPASS]
    cache.begin_step()
    assert kinds(cache.resolve(0, [1])) == [FILL]


def test_layers_have_their_own_slots() -> None:
    cache = make(5, layers=3)
    assert kinds(use(cache, 0, 1, layer=2)) == [FILL, BYPASS]
    assert kinds(use(cache, 0, 1, layer=0)) == [FILL, FILL]
    assert cache.residency[2, 0] == 2
    assert {int(cache.residency[0, expert]) for expert in (0, 1)} == {0, 3}


def test_without_slots_every_expert_is_bypassed() -> None:
    cache = make(0)
    assert kinds(use(cache, 0, 1)) == [BYPASS, BYPASS]
    cache.lend(0)
    assert cache.give_back() == []


def test_a_failed_copy_leaves_the_slot_empty() -> None:
    cache = make(1)
    cache.begin_step()
    (fill,) = cache.resolve(0, [3])
    cache.fill_failed(fill)
    assert count(cache, EMPTY) == 1
    assert not cache.filled(fill)
    cache.check()
    assert kinds(use(cache, 3)) == [FILL]


def test_an_expert_that_is_still_being_copied_is_bypassed() -> None:
    cache = make(2)
    cache.begin_step()
    (fill,) = cache.resolve(0, [3])
    cache.begin_step()
    assert kinds(cache.resolve(0, [3])) == [BYPASS]
    assert cache.filled(fill)
    cache.check()


@pytest.mark.parametrize("experts", [[1, 1], [8], [-1]], ids=["twice", "too high", "negative"])
def test_experts_must_be_distinct_and_exist(experts: list[int]) -> None:
    cache = make(2)
    with pytest.raises(ValueError, match="not distinct experts of 8"):
        cache.resolve(0, experts)


def test_trimmed_slots_leave_the_map_and_grown_ones_are_empty() -> None:
    cache = make(4)
    use(cache, 0, 1, 2, 3)
    cache.trim(1)
    cache.check()
    assert len(resident(cache)) == 1
    assert (cache.slots, count(cache, UNMAPPED)) == (1, 3)
    cache.grow(6)
    cache.check()
    assert (cache.slots, count(cache, EMPTY), count(cache, UNMAPPED)) == (6, 5, 0)


def test_late_ends_of_copies_into_trimmed_slots_publish_nothing() -> None:
    cache = make(2)
    use(cache, 0, 1)
    cache.lend(2)
    reservation, _ = cache.give_back()
    assert cache.begin_copy(reservation)
    cache.trim(0)
    assert cache.writing(0) == [reservation.slot]
    assert not cache.commit(reservation)
    cache.check()
    cache.grow(2)
    assert not cache.commit(reservation)
    assert resident(cache) == set()
    cache.check()


def test_trim_and_grow_never_go_the_other_way() -> None:
    cache = make(3)
    cache.trim(5)
    assert cache.slots == 3
    cache.grow(2)
    assert cache.slots == 3


def test_lent_slots_cannot_be_trimmed() -> None:
    cache = make(3)
    cache.lend(2)
    with pytest.raises(InvariantError, match="cut to 1 while 2 are lent"):
        cache.trim(1)


def test_after_a_failure_all_copies_are_forgotten() -> None:
    cache = make(3)
    use(cache, 0, 1)
    cache.lend(2)
    reservation = cache.give_back()[0]
    assert cache.begin_copy(reservation)
    cache.begin_step()
    (fill,) = cache.resolve(0, [5])
    cache.forget_copies()
    cache.check()
    assert cache.writing() == []
    assert not cache.filled(fill)
    assert not cache.commit(reservation)
    assert count(cache, FILLING) == count(cache, RESERVED) == 0


def test_counters_tell_what_happened() -> None:
    cache = make(2, layers=2)
    use(cache, 0, 1, layer=1)
    use(cache, 0, layer=1)
    done = cache.counters
    assert (done.hits, done.misses, done.fills, done.filled, done.bypasses) == (1, 2, 1, 1, 1)
    assert (done.bytes_filled, done.bytes_streamed) == (512, 512)
    assert done.hit_rate == 1 / 3


def test_a_window_holds_what_happened_since_the_last() -> None:
    cache = make(1)
    use(cache, 0)
    assert cache.take_window().hits == 0
    use(cache, 0)
    use(cache, 0)
    assert cache.take_window().hits == 2
    assert cache.take_window().hit_rate is None
    assert cache.counters.hits == 2


def test_refilled_bytes_are_counted() -> None:
    cache = make(2, layers=2)
    use(cache, 0, layer=1)
    cache.lend(2)
    (reservation,) = cache.give_back()
    assert refill(cache, reservation)
    assert cache.counters.bytes_refilled == 512


def test_counters_that_do_not_balance_are_an_error() -> None:
    cache = make(1)
    use(cache, 0)
    cache._counters.fills += 1
    with pytest.raises(InvariantError, match="1 misses, but 2 fills and bypasses"):
        cache.check()


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda table: table.residency.fill(NO_SLOT), "names 0 slots, but 2 are HOLDING"),
        (lambda table: table.expert.fill(0), r"slots \[0, 1\] are all HOLDING with expert 0"),
        (lambda table: table.state.fill(LENT), "are LENT instead of"),
        (lambda table: table.stamp.fill(9), "stamped 9 in step 1"),
        (lambda table: table.writer.fill(9), "but copy 9 is writing there"),
        (lambda table: table.coming.fill(1), "marked as coming"),
    ],
    ids=["map", "expert", "state", "stamp", "writer", "coming"],
)
def test_a_spoiled_table_is_an_error(spoil: Callable[..., None], rule: str) -> None:
    cache = make(2)
    use(cache, 0, 1)
    spoil(cache._table)
    with pytest.raises(InvariantError, match=rule):
        cache.check()


def test_the_residency_map_cannot_be_written_from_outside() -> None:
    cache = make(2)
    with pytest.raises(ValueError, match="read-only"):
        cache.residency[0, 0] = 1


def test_routing_is_counted_per_layer_until_taken() -> None:
    cache = make(2, layers=2)
    cache.count_routing(1, np.array([[0, 3], [3, 7]], np.int32))
    cache.count_routing(1, [3])
    counts = cache.take_routing()
    assert counts.tolist() == [[0] * 8, [1, 0, 0, 3, 0, 0, 0, 1]]
    assert not cache.take_routing().any()


@pytest.mark.parametrize("expert", [-1, 8])
def test_routing_to_no_expert_is_an_error(expert: int) -> None:
    with pytest.raises(ValueError, match=r"expert 8|negative"):
        make(2).count_routing(0, [expert])
