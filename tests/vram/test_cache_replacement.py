"""Guards against a small cache that throws out every popular expert before its next use."""

from collections import OrderedDict
from typing import TypeAlias

import numpy as np
import pytest

from stratadesk.engine.vram.slot_states import PlacementKind
from tests.vram.cache_helpers import kinds, make, one_hot, refill, resident, use

BYPASS = PlacementKind.BYPASS

Trace: TypeAlias = list[list[int]]


def zipf(seed: int, steps: int, new_order_every: int | None = None) -> Trace:
    """Windows of 8 distinct experts of 256, drawn with weights 1, 1/2, 1/3 … in random order."""
    rng = np.random.default_rng(seed)
    weights = np.log(1 / np.arange(1, 257))
    order, trace = rng.permutation(256), []
    for step in range(steps):
        if new_order_every and step % new_order_every == 0:
            order = rng.permutation(256)
        drawn = np.argsort(-(weights + rng.gumbel(size=256)))[:8]
        trace.append(order[drawn].tolist())
    return trace


def repeating(seed: int, steps: int) -> Trace:
    """Windows of 8 of 256, each expert used again by the next step with probability 0.4."""
    rng = np.random.default_rng(seed)
    window, trace = np.arange(8), []
    for _ in range(steps):
        kept = window[rng.random(8) < 0.4]
        others = np.setdiff1d(np.arange(256), kept)
        window = np.concatenate([kept, rng.choice(others, 8 - len(kept), replace=False)])
        trace.append(window.tolist())
    return trace


def hit_rate(trace: Trace, slots: int, below: int | None) -> float:
    cache = make(slots, experts=256, used=8, below=below)
    for window in trace:
        use(cache, *window)
    rate = cache.counters.hit_rate
    assert rate is not None
    return rate


def hits_of_textbook_lru(trace: Trace, slots: int) -> int:
    """Least recently used as a textbook has it, with a step's own experts protected."""
    held: OrderedDict[int, int] = OrderedDict()
    hits = 0
    for step, window in enumerate(trace):
        found = [expert for expert in window if expert in held]
        hits += len(found)
        for expert in found:
            held[expert] = step
            held.move_to_end(expert)
        for expert in window:
            if expert not in found and (len(held) < slots or next(iter(held.values())) < step):
                if len(held) == slots:
                    held.popitem(last=False)
                held[expert] = step
    return hits


@pytest.mark.parametrize("slots", [8, 16, 64])
def test_plain_lru_hits_as_often_as_the_textbook(slots: int) -> None:
    trace = zipf(1, 300)
    hits = hits_of_textbook_lru(trace, slots)
    assert hit_rate(trace, slots, 0) == pytest.approx(hits / (8 * len(trace)), abs=0.01)


@pytest.mark.parametrize(("slots", "gain"), [(8, 0.12), (16, 0.12), (23, 0.10)], ids=str)
def test_few_slots_hit_more_of_a_skewed_trace_than_lru(
    slots: int, gain: float, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = zipf(2, 600)
    lru, ours = hit_rate(trace, slots, 0), hit_rate(trace, slots, None)
    with capsys.disabled():
        print(f"\n  {slots} slots, Zipf: LRU {lru:.1%}, by rate of use {ours:.1%}", end="")
    assert ours > lru + gain


@pytest.mark.parametrize(
    "trace",
    [zipf(3, 600, new_order_every=150), repeating(4, 600)],
    ids=["popularity changes", "tokens repeat experts"],
)
@pytest.mark.parametrize("slots", [8, 16])
def test_few_slots_hit_no_less_than_lru_where_lru_is_good(trace: Trace, slots: int) -> None:
    assert hit_rate(trace, slots, None) > hit_rate(trace, slots, 0) - 0.02


def test_turned_away_experts_are_counted() -> None:
    cache = make(8, experts=256, used=8, below=None)
    for window in zipf(5, 100):
        use(cache, *window)
    done = cache.counters
    assert 0 < done.turned_away <= done.bypasses


def test_from_three_times_the_used_experts_on_a_layer_is_lru() -> None:
    trace = zipf(6, 200)
    assert hit_rate(trace, 24, None) == hit_rate(trace, 24, 0)
    assert hit_rate(trace, 23, None) != hit_rate(trace, 23, 0)


def test_a_prompt_teaches_what_is_popular() -> None:
    cache = make(2, experts=8, used=2, below=None)
    cache.lend(2)
    for reservation in cache.give_back(one_hot(cache, 0, e6=90, e7=90, e1=20)):
        assert refill(cache, reservation)
    assert kinds(use(cache, 1, 2)) == [BYPASS, BYPASS]
    assert resident(cache) == {6, 7}
