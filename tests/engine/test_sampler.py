"""Guards against tokens drawn from another distribution than the settings say: a step left out
or out of order, candidates lost at a boundary, seeds that do not repeat, logits written over.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.sampler import Logits, Sampler, narrow, penalise, weigh
from stratadesk.errors import StrataDeskError, UsageError

PINNED = [1087, 1393, 13, 1369, 1044, 1344, 1087, 558, 1204, 1393, 1345, 1007]
OFF = SamplingSettings(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)


def reference(logits: Logits, history: Sequence[int], s: SamplingSettings) -> dict[int, float]:
    """Probability per token id, one obvious step after the other."""
    scores = [float(x) for x in logits]
    recent = history if s.penalty_last_n < 0 else history[len(history) - s.penalty_last_n :]
    for token, count in Counter(recent).items() if s.penalty_last_n else ():
        x = scores[token]
        x = x / s.repeat_penalty if x > 0 else x * s.repeat_penalty
        scores[token] = x - count * s.frequency_penalty - s.presence_penalty
    left = sorted(range(len(scores)), key=lambda token: -scores[token])
    if s.top_k:
        left = left[: s.top_k]
    if s.top_p < 1:
        total = sum(math.exp(scores[t] - scores[left[0]]) for t in left)
        mass, kept = 0.0, []
        for token in left:
            kept.append(token)
            mass += math.exp(scores[token] - scores[left[0]]) / total
            if mass >= s.top_p:
                break
        left = kept
    if s.min_p > 0:
        left = [t for t in left if scores[t] >= scores[left[0]] + math.log(s.min_p)]
    weights = {t: math.exp((scores[t] - scores[left[0]]) / s.temperature) for t in left}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def distribution(logits: Logits, history: Sequence[int], s: SamplingSettings) -> dict[int, float]:
    """What the sampler draws from."""
    candidates = narrow(penalise(logits, history, s), s)
    weights = weigh(candidates.logits, s.temperature)
    ids = [candidates.id_at(i) for i in range(len(weights))]
    return dict(zip(ids, (weights / weights.sum()).tolist(), strict=True))


def distinct_logits(seed: int, n: int) -> Logits:
    """Logits in random order, none of two equal, so that no rounding decides a cut."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.linspace(-9, 6, n)).astype(np.float32)


sampling = st.builds(
    SamplingSettings,
    temperature=st.floats(0.1, 3),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 299, 300, 5000]),
    top_p=st.sampled_from([0.0, 0.1234, 0.5678, 0.9501, 0.99987, 1.0]),
    min_p=st.sampled_from([0.0, 0.00123, 0.0567, 0.51, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.13, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.37, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.21]),
    penalty_last_n=st.sampled_from([-1, 0, 3, 64]),
)


@settings(max_examples=300, deadline=None)
@given(s=sampling, seed=st.integers(0, 50), n=st.sampled_from([1, 2, 300, 1536]))
def test_distribution_is_that_of_the_obvious_steps(s: SamplingSettings, seed: int, n: int) -> None:
    logits = distinct_logits(seed, n)
    history = np.random.default_rng(seed).integers(0, n, 20).tolist()

    got, want = distribution(logits, history, s), reference(logits, history, s)

    assert got.keys() == want.keys()
    assert all(got[t] == pytest.approx(want[t], rel=1e-5, abs=1e-12) for t in want)


@pytest.mark.parametrize("top_k", [1, 40, 900, 5000])
def test_best_of_a_large_vocabulary_are_found_among_equal_ones(top_k: int) -> None:
    logits = np.random.default_rng(3).integers(0, 50, 248_320).astype(np.float32)
    candidates = narrow(logits, replace(OFF, top_k=top_k))

    want = np.argsort(-logits, kind="stable")[:top_k]
    assert [candidates.id_at(i) for i in range(top_k)] == want.tolist()


def test_top_p_alone_on_a_large_vocabulary() -> None:
    logits = np.random.default_rng(4).normal(0, 3, 248_320).astype(np.float32)
    s = replace(OFF, top_p=0.9)
    assert distribution(logits, [], s).keys() == reference(logits, [], s).keys()


@pytest.mark.parametrize("extreme", [np.finfo(np.float32).max, 1e-44])
def test_extreme_logits_stay_numbers(extreme: float) -> None:
    logits = np.array([-extreme, 0, extreme, extreme], np.float32)
    for s in (OFF, replace(OFF, top_p=0.5), replace(OFF, top_k=2, repeat_penalty=50.0)):
        for temperature in (1e-300, 1.0):
            token = Sampler(replace(s, temperature=temperature)).next(logits, [2, 3])
            assert 0 <= token < 4


def test_penalties_by_hand() -> None:
    logits = np.array([2.0, -2.0, 1.0, 0.5], np.float32)
    s = replace(OFF, repeat_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)

    changed = penalise(logits, [3, 0, 1, 1], replace(s, penalty_last_n=3))

    assert changed.tolist() == [2 / 2 - 0.5 - 0.25, -2 * 2 - 2 * 0.5 - 0.25, 1.0, 0.5]


def test_ids_of_history_outside_the_vocabulary_are_passed_over() -> None:
    logits = np.array([1.0, 0.0], np.float32)
    assert penalise(logits, [7, -1], replace(OFF, repeat_penalty=2.0)).tolist() == [1.0, 0.0]


def test_greedy_takes_the_best_penalised_and_the_first_of_equal_ones() -> None:
    logits = np.array([0.0, 3.0, 3.0, 2.9], np.float32)
    greedy = replace(OFF, temperature=0.0)
    assert Sampler(greedy).next(logits, []) == 1
    assert Sampler(replace(greedy, presence_penalty=1.0)).next(logits, [1]) == 2
    assert Sampler(replace(greedy, presence_penalty=1.0)).next(logits, [1, 2]) == 3


def test_logits_are_not_written_to() -> None:
    logits = distinct_logits(1, 1536)
    logits.flags.writeable = False
    before = logits.copy()
    for s in (OFF, SamplingSettings(repeat_penalty=1.2), replace(OFF, top_p=0.5, min_p=0.1)):
        Sampler(s).next(logits, [1, 2, 3])
    assert np.array_equal(logits, before)


def test_seeds_repeat_on_every_platform() -> None:
    logits = distinct_logits(2, 1536)
    sampler = Sampler(SamplingSettings(seed=42))
    drawn = [sampler.next(logits, []) for _ in range(12)]
    assert drawn == PINNED
    assert sampler.seed == 42


def test_without_a_seed_a_fresh_one_is_drawn_and_told() -> None:
    seeds = {Sampler(SamplingSettings()).seed for _ in range(8)}
    assert len(seeds) == 8
    logits = distinct_logits(2, 1536)
    first = Sampler(SamplingSettings())
    again = Sampler(SamplingSettings(seed=first.seed))
    assert [first.next(logits, []) for _ in range(9)] == [again.next(logits, []) for _ in range(9)]


@pytest.mark.parametrize(
    "s",
    [OFF, replace(OFF, temperature=0.5), replace(OFF, top_k=5), replace(OFF, top_p=0.8, min_p=0.1)],
)
def test_draws_are_as_frequent_as_their_probabilities(s: SamplingSettings) -> None:
    logits = np.array([0.5, 2.0, -1.0, 1.5, 0.0, 1.9, -3.0, 0.9], np.float32)
    sampler = Sampler(replace(s, seed=7))
    n = 4000
    drawn = Counter(sampler.next(logits, []) for _ in range(n))
    want = reference(logits, [], s)

    assert drawn.keys() <= want.keys()
    chi_square = sum((drawn[t] - n * p) ** 2 / (n * p) for t, p in want.items())
    # 24.3 is passed by one seed in a thousand at 7 degrees of freedom.
    assert chi_square < 24.3


@pytest.mark.parametrize(
    ("bad", "words"), [(np.nan, "1 (nan)"), (np.inf, "1 (inf)"), (-np.inf, "1 (-inf)")]
)
def test_logits_that_are_no_numbers_are_an_error_with_positions(bad: float, words: str) -> None:
    logits = np.array([0.0, bad, 1.0, bad], np.float32)
    for s in (OFF, replace(OFF, temperature=0.0)):
        with pytest.raises(StrataDeskError) as caught:
            Sampler(s).next(logits, [])
        assert words in caught.value.sentence
        assert "2 of 4 logits" in caught.value.sentence


@pytest.mark.parametrize("shape", [(0,), (2, 3), ()])
def test_logits_of_another_shape_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(StrataDeskError, match="shape"):
        Sampler(OFF).next(np.zeros(shape, np.float32), [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": -0.1}, "temperature is -0.1, not between 0.0 and 100.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": -1}, "top k is -1"),
        ({"top_p": 1.01}, "top p is 1.01"),
        ({"top_p": -0.01}, "top p"),
        ({"min_p": 2.0}, "min p"),
        ({"repeat_penalty": 0.0}, "repeat penalty"),
        ({"presence_penalty": math.nan}, "presence penalty"),
        ({"frequency_penalty": 1e9}, "frequency penalty"),
        ({"penalty_last_n": -2}, "penalty last n is -2, not between -1"),
        ({"seed": -1}, "seed is -1"),
        ({"stop": ("a", "")}, "stop string is empty"),
    ],
)
def test_settings_out_of_range_are_bad_usage(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sampler(replace(OFF, **change))
    assert words in caught.value.sentence
