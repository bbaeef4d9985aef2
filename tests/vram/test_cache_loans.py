"""Guards against loans after which a cache is cold, names lent slots, or brings experts twice."""

import numpy as np
import pytest

from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.slot_states import PlacementKind, SlotState
from tests.vram.cache_helpers import count, kinds, make, one_hot, refill, resident, use

HIT, FILL, BYPASS = PlacementKind.HIT, PlacementKind.FILL, PlacementKind.BYPASS
EMPTY, LENT = SlotState.EMPTY, SlotState.LENT


def test_lent_slots_leave_the_map_and_come_back_with_the_same_experts() -> None:
    cache = make(4)
    use(cache, 0, 1, 2, 3)
    kept = {int(e) for e in np.flatnonzero(cache.residency[0] >= 2)}
    cache.lend(2)
    assert resident(cache) == kept
    assert cache.lent == 2
    assert count(cache, LENT) == 2
    reservations = cache.give_back()
    assert cache.lent == 0
    assert cache.reserved == 2
    assert resident(cache) == kept
    assert all(refill(cache, reservation) for reservation in reservations)
    cache.check()
    assert resident(cache) == {0, 1, 2, 3}
    assert cache.counters.refilled == 2


def test_the_latest_used_expert_comes_back_first_and_furthest_from_the_head() -> None:
    cache = make(3)
    for expert in (4, 5, 6):
        use(cache, expert)
    use(cache, 5)
    cache.lend(3)
    back = cache.give_back()
    assert [(r.expert, r.slot) for r in back] == [(5, 2), (6, 1), (4, 0)]


def test_what_the_prompt_used_most_comes_back_instead() -> None:
    cache = make(3)
    use(cache, 0, 1, 2)
    cache.lend(3)
    back = cache.give_back(one_hot(cache, 0, e6=9, e7=5, e1=5))
    assert [r.expert for r in back] == [6, 1, 7]
    cache.check()


def test_experts_not_used_by_the_prompt_fill_up_what_is_left() -> None:
    cache = make(3)
    use(cache, 0, 1, 2)
    cache.lend(3)
    back = cache.give_back(one_hot(cache, 0, e6=9))
    assert back[0].expert == 6
    assert {r.expert for r in back[1:]} < {0, 1, 2}


def test_nothing_comes_back_twice() -> None:
    cache = make(4)
    use(cache, 0, 1, 2, 3)
    staying = resident(cache) - {int(e) for e in np.flatnonzero(cache.residency[0] < 2)}
    assert staying
    cache.lend(2)
    counts = np.full(cache.residency.shape, 1, np.int64)
    counts[0, list(resident(cache))] = 100
    back = cache.give_back(counts)
    assert not {r.expert for r in back} & resident(cache)


def test_layers_are_refilled_in_turn() -> None:
    cache = make(6, layers=2)
    for layer in (0, 1):
        use(cache, 0, 1, 2, layer=layer)
    cache.lend(6)
    assert [r.layer for r in cache.give_back()] == [0, 1, 0, 1, 0, 1]


def test_a_loan_may_end_within_a_row() -> None:
    cache = make(6, layers=2)
    for layer in (0, 1):
        use(cache, 0, 1, 2, layer=layer)
    cache.lend(3)
    assert (len(resident(cache, 0)), len(resident(cache, 1))) == (1, 2)
    assert sorted(r.layer for r in cache.give_back()) == [0, 0, 1]


def test_a_second_loan_remembers_what_the_first_refill_had_not_brought() -> None:
    cache = make(2)
    use(cache, 0, 1)
    cache.lend(2)
    first = cache.give_back()
    assert cache.begin_copy(first[0])
    cache.lend(2)
    assert cache.writing(0, 2) == [first[0].slot]
    assert not cache.commit(first[0])
    assert not cache.begin_copy(first[1])
    assert cache.writing() == []
    assert {r.expert for r in cache.give_back()} == {0, 1}
    cache.check()


def test_a_slot_that_a_dropped_copy_still_writes_to_is_nobodys() -> None:
    cache = make(1)
    cache.begin_step()
    (fill,) = cache.resolve(0, [3])
    cache.lend(1)
    assert cache.give_back() == []
    assert count(cache, EMPTY) == 1
    assert kinds(use(cache, 4)) == [BYPASS]
    assert not cache.filled(fill)
    assert kinds(use(cache, 4)) == [FILL]


def test_reserved_slots_are_not_for_misses() -> None:
    cache = make(1)
    use(cache, 0)
    cache.lend(1)
    (reservation,) = cache.give_back()
    assert kinds(use(cache, 1)) == [BYPASS]
    assert kinds(use(cache, 0)) == [BYPASS]
    assert refill(cache, reservation)
    assert kinds(use(cache, 0)) == [HIT]


@pytest.mark.parametrize("begun", [False, True], ids=["before the copy", "after the copy"])
def test_a_refill_is_dropped_when_its_expert_came_in_on_demand(begun: bool) -> None:
    cache = make(2)
    use(cache, 0, 1)
    lost = int(np.flatnonzero(cache.residency[0] == 0)[0])
    cache.lend(1)
    (reservation,) = cache.give_back()
    assert not begun or cache.begin_copy(reservation)
    assert kinds(use(cache, lost)) == [FILL]
    assert not (cache.commit(reservation) if begun else cache.begin_copy(reservation))
    cache.check()
    assert resident(cache) == {lost}
    assert count(cache, EMPTY) == 1
    assert cache.counters.refills_dropped == 1


def test_an_abandoned_reservation_leaves_the_slot_empty() -> None:
    cache = make(1)
    use(cache, 0)
    cache.lend(1)
    (reservation,) = cache.give_back()
    cache.abandon(reservation)
    cache.check()
    assert count(cache, EMPTY) == 1
    assert not cache.begin_copy(reservation)
    assert not cache.commit(reservation)


def test_a_commit_needs_a_copy() -> None:
    cache = make(1)
    use(cache, 0)
    cache.lend(1)
    (reservation,) = cache.give_back()
    with pytest.raises(InvariantError, match="never began"):
        cache.commit(reservation)


def test_a_reservation_is_copied_once() -> None:
    cache = make(1)
    use(cache, 0)
    cache.lend(1)
    (reservation,) = cache.give_back()
    assert cache.begin_copy(reservation)
    with pytest.raises(InvariantError, match="still writing there"):
        cache.begin_copy(reservation)


def test_one_loan_at_a_time_and_no_more_than_there_is() -> None:
    cache = make(2)
    with pytest.raises(InvariantError, match="3 slots cannot be lent: 0 of 2"):
        cache.lend(3)
    cache.lend(1)
    with pytest.raises(InvariantError, match="1 slots cannot be lent: 1 of 2"):
        cache.lend(1)
