"""Guards against a hint that cries wolf, or one that falls silent while the card pages.

Twice the time is no sign of paging when more experts were missed, the context grew, the battery
took over, or one step hiccuped.
"""

import random

import pytest

from stratadesk.engine.vram.paging_hint import PagingDetector, PagingHint
from stratadesk.units import MIB

STEP_S = 0.02
STREAMED = 100 * MIB


class Decoding:
    """Decodes token after token; what a test changes counts from the next step on."""

    def __init__(self) -> None:
        self.detector = PagingDetector()
        self.context = 1000
        self.seconds = STEP_S
        self.streamed = STREAMED
        self.setting = "2,616 slots, on mains"
        self.noise = random.Random(7)

    def steps(self, count: int) -> PagingHint | None:
        for _ in range(count):
            self.context += 1
            jitter = self.noise.uniform(0.9, 1.1)
            hint = self.detector.note(
                self.context, self.seconds * jitter, int(self.streamed * jitter), self.setting
            )
        return hint


@pytest.fixture
def decoding() -> Decoding:
    decoding = Decoding()
    assert decoding.steps(100) is None
    return decoding


def test_the_same_work_in_more_than_twice_the_time_raises_the_hint(decoding: Decoding) -> None:
    decoding.seconds = 2.5 * STEP_S
    hint = decoding.steps(60)
    assert hint is not None
    assert 2.2 < hint.times < 2.7
    assert hint.sentence.startswith("Probably paging: a token takes 2.")


def test_it_comes_within_a_dozen_steps_of_a_tenfold_slowdown(decoding: Decoding) -> None:
    decoding.seconds = 10 * STEP_S
    assert decoding.steps(12) is not None


def test_it_goes_when_the_time_is_normal_again(decoding: Decoding) -> None:
    decoding.seconds = 4 * STEP_S
    assert decoding.steps(60) is not None
    decoding.seconds = STEP_S
    assert decoding.steps(60) is None


@pytest.mark.parametrize("times", [1.0, 1.4, 1.8])
def test_less_than_twice_is_no_sign(decoding: Decoding, times: float) -> None:
    decoding.seconds = times * STEP_S
    assert decoding.steps(200) is None


def test_one_hiccup_is_no_sign(decoding: Decoding) -> None:
    decoding.seconds = 100 * STEP_S
    assert decoding.steps(1) is None
    decoding.seconds = STEP_S
    assert decoding.steps(1) is None


def test_more_bytes_over_the_link_explain_it(decoding: Decoding) -> None:
    decoding.seconds, decoding.streamed = 3 * STEP_S, 3 * STREAMED
    assert decoding.steps(200) is None


def test_another_setting_explains_it_and_starts_anew(decoding: Decoding) -> None:
    decoding.seconds, decoding.setting = 3 * STEP_S, "2,616 slots, on battery"
    assert decoding.steps(200) is None
    decoding.seconds = 9 * STEP_S
    assert decoding.steps(60) is not None


def test_a_context_never_seen_has_nothing_to_compare_with(decoding: Decoding) -> None:
    decoding.context, decoding.seconds = 60_000, 3 * STEP_S
    assert decoding.steps(200) is None


def test_the_hint_outlives_the_context_it_came_up_in(decoding: Decoding) -> None:
    decoding.seconds = 4 * STEP_S
    assert decoding.steps(5000) is not None
    decoding.seconds = STEP_S
    assert decoding.steps(60) is None


def test_what_was_slow_while_paging_is_not_the_best_of_its_context(decoding: Decoding) -> None:
    decoding.seconds = 4 * STEP_S
    decoding.steps(3000)
    decoding.seconds = STEP_S
    decoding.steps(500)
    decoding.seconds = 4 * STEP_S
    assert decoding.steps(60) is not None


def test_time_that_grows_with_the_context_is_no_sign() -> None:
    decoding = Decoding()
    for _ in range(300):
        decoding.seconds = STEP_S * (1 + decoding.context / 8192)
        assert decoding.steps(100) is None
