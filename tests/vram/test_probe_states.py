"""Guards against a memory alarm that is late, flickers, or goes away by luck.

What must not happen: a figure of 0 that is smoothed over, a banner that leaves because one
sample looked good, a missing figure taken for 0 or for all well, a decision on an old figure.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.readings import CardFigure, Growth, MemoryReading, Source
from stratadesk.engine.vram.states import CALM_S, STALE_S, MemoryState, MemoryWatch
from stratadesk.units import MIB
from tests.vram.probe_helpers import RESERVE, reading

OK, LOW, ZERO, LOST = MemoryState.OK, MemoryState.LOW, MemoryState.ZERO, MemoryState.LOST


def states(*samples: tuple[float, float | None], reserve: int = RESERVE) -> list[MemoryState]:
    """The states after each (seconds, free MiB)."""
    watch = MemoryWatch(reserve)
    return [watch.push(reading(at, free)).state for at, free in samples]


def test_below_the_reserve_is_low_at_once() -> None:
    assert states((0, 700), (0.5, 589)) == [OK, LOW]
    assert states((0, 590)) == [OK]


def test_nothing_free_in_two_samples_in_a_row_is_zero() -> None:
    assert states((0, 700), (0.5, 0), (1, 0)) == [OK, LOW, ZERO]


def test_less_than_one_mib_is_zero_as_screens_write_it() -> None:
    assert states((0, 0.99), (0.5, 0.5)) == [LOW, ZERO]
    assert states((0, 1), (0.5, 1)) == [LOW, LOW]


def test_a_figure_of_zero_is_never_averaged_away() -> None:
    seen = states(*((tick / 2, 0 if tick % 2 else 5000) for tick in range(60)))
    assert seen == [OK] + [LOW] * 59


def test_a_sample_without_a_figure_does_not_come_between_two_of_zero() -> None:
    assert states((0, 0), (0.5, None), (1, 0)) == [LOW, LOW, ZERO]


def test_an_alarm_clears_after_five_seconds_above_the_reserve() -> None:
    assert states((0, 0), (0.5, 0), (1, 600), (5.9, 600), (6, 600)) == [LOW, ZERO, ZERO, ZERO, OK]
    assert states((0, 500), (1, 600), (5.9, 600), (6, 600)) == [LOW, LOW, LOW, OK]


@pytest.mark.parametrize("dip", [0, 589, None])
def test_one_bad_or_missing_sample_starts_the_five_seconds_anew(dip: float | None) -> None:
    seen = states((0, 0), (1, 0), (2, 600), (5, 600), (6, dip), (6.5, 600), (9, 600), (11.4, 600))
    assert seen[-1] is ZERO
    watch = MemoryWatch(RESERVE)
    for at, free in ((0, 0), (1, 0), (6, dip), (6.5, 600), (9, 600), (11.5, 600)):
        status = watch.push(reading(at, free))
    assert status.state is OK


def test_a_gap_between_two_good_samples_proves_nothing() -> None:
    assert states((0, 0), (1, 0), (2, 600), (8, 600), (13, 600)) == [LOW, ZERO, ZERO, ZERO, OK]


def test_readings_older_than_five_seconds_are_lost_and_come_back_as_they_were() -> None:
    watch = MemoryWatch(RESERVE)
    assert watch.status(0).state is LOST
    watch.push(reading(0, 0))
    watch.push(reading(1, 0))
    assert watch.status(1 + STALE_S).state is ZERO
    lost = watch.status(1 + STALE_S + 0.1)
    assert lost.state is LOST
    assert lost.age == pytest.approx(5.1)
    assert watch.push(reading(20, 5000)).state is ZERO
    assert watch.push(reading(25, 5000)).state is OK


def test_no_figure_freezes_the_state_until_it_is_lost() -> None:
    assert states((0, 700), (1, None), (5, None), (5.1, None)) == [OK, OK, OK, LOST]
    assert states((0, None)) == [LOST]


def test_asking_for_the_status_changes_nothing() -> None:
    asked, quiet = MemoryWatch(RESERVE), MemoryWatch(RESERVE)
    for tick, free in enumerate([700, 0, 0, 600, 600, 600, 600, 600, 600]):
        asked.status(tick + 0.5)
        asked.status(tick + 100)
        assert asked.push(reading(tick, free)) == quiet.push(reading(tick, free))


def test_a_reserve_raised_live_counts_from_the_next_sample() -> None:
    watch = MemoryWatch(RESERVE)
    assert watch.push(reading(0, 600)).state is OK
    watch.reserve = 1000 * MIB
    assert watch.push(reading(0.5, 600)).state is LOW
    watch.reserve = 0
    assert watch.push(reading(1, 0)).state is LOW
    assert watch.push(reading(1.5, 0)).state is ZERO


def test_the_smallest_headroom_of_all_sources_decides() -> None:
    figures = (
        CardFigure(Source.CUDA, total=8151 * MIB, free=700 * MIB),
        CardFigure(Source.NVML, why="no driver"),
        CardFigure(Source.DXGI, budget=7000 * MIB, own=6900 * MIB),
    )
    status = MemoryWatch(RESERVE).push(MemoryReading(0, DriverModel.WDDM, figures))
    assert (status.state, status.headroom, status.source) == (LOW, 100 * MIB, Source.DXGI)


def test_a_budget_that_is_exceeded_leaves_no_headroom_and_half_a_budget_is_no_figure() -> None:
    assert CardFigure(Source.DXGI, budget=5, own=9).headroom == 0
    assert CardFigure(Source.DXGI, budget=5).headroom is None
    assert CardFigure(Source.CUDA).headroom is None


def test_the_program_that_grew_most_is_kept_while_the_alarm_lasts() -> None:
    browser, game = Growth("browser", 2, 400 * MIB), Growth("game", 3, 900 * MIB)
    watch = MemoryWatch(RESERVE)
    assert watch.push(reading(0, 700, grew=browser)).grew is None
    assert watch.push(reading(1, 100, grew=game)).grew == game
    assert watch.push(reading(2, 100, grew=browser)).grew == game
    assert watch.push(reading(3, 700)).grew == game
    assert watch.push(reading(8, 700)).grew is None


# --- any sequence at all -----------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    wait: float
    free: int | None
    reserve: int


EDGES = (0, MIB - 1, MIB, 300 * MIB, RESERVE - 1, RESERVE, RESERVE + 1)
PLENTY = 4000 * MIB
WAITS = (0.25, 0.5, 1.0, 1.0, 2.5, 5.0, 5.25, 9.0)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Stretches of equal samples, so that five quiet seconds are not a rarity."""
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 8))):
        free = draw(st.sampled_from((None, 0, 0, *EDGES, PLENTY, PLENTY, PLENTY)))
        wait = draw(st.sampled_from(WAITS))
        reserve = draw(st.sampled_from((RESERVE, RESERVE, 0, 1000 * MIB)))
        steps += [Step(wait, free, reserve)] * draw(st.integers(1, 12))
    return steps


@dataclass(frozen=True)
class Seen:
    at: float
    free: int | None
    kept: bool
    state: MemoryState


def run(history: list[Step]) -> list[Seen]:
    watch, at, seen = MemoryWatch(RESERVE), 0.0, []
    for step in history:
        at += step.wait
        watch.reserve = step.reserve
        figures = (CardFigure(Source.CUDA, free=step.free),)
        state = watch.push(MemoryReading(at, DriverModel.LINUX, figures)).state
        kept = step.free is not None and step.free >= max(step.reserve, MIB)
        seen.append(Seen(at, step.free, kept, state))
    return seen


def ends_five_good_seconds(seen: list[Seen], end: int) -> bool:
    """Whether samples up to `end`, no more than 5 s apart, all keep the reserve for 5 s."""
    start = end
    while start and seen[start - 1].kept and seen[start].at - seen[start - 1].at <= STALE_S:
        start -= 1
    return seen[end].kept and seen[end].at - seen[start].at >= CALM_S


def expected(seen: list[Seen], index: int) -> MemoryState:
    """The rules written as questions about the whole history, without any state."""
    known = [number for number in range(index + 1) if seen[number].free is not None]
    if not known or seen[index].at - seen[known[-1]].at > STALE_S:
        return LOST
    cleared = [n for n in range(index + 1) if ends_five_good_seconds(seen, n)]
    since = cleared[-1] if cleared else -1
    zeros = [n for n in known if seen[n].free is not None and (seen[n].free or 0) < MIB]
    pairs = [b for a, b in pairwise(known) if a in zeros and b in zeros]
    if any(n > since for n in pairs):
        return ZERO
    return LOW if any(n > since and not seen[n].kept for n in known) else OK


@settings(max_examples=300, deadline=None)
@given(histories())
def test_any_sequence_gives_the_states_of_the_rules(history: list[Step]) -> None:
    seen = run(history)
    assert [sample.state for sample in seen] == [expected(seen, n) for n in range(len(seen))]
    for state in {sample.state for sample in seen}:
        event(f"reached {state}")


@settings(max_examples=100, deadline=None)
@given(histories())
def test_zero_is_left_only_after_five_seconds_above_the_reserve(history: list[Step]) -> None:
    seen = run(history)
    in_alarm = False
    for number, sample in enumerate(seen):
        in_alarm = in_alarm or sample.state is ZERO
        if in_alarm and sample.state in (OK, LOW):
            assert ends_five_good_seconds(seen, number)
            assert sample.state is OK
            in_alarm = False
            event("zero was left")


@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from(WAITS))
def test_two_samples_of_zero_always_raise_the_alarm(history: list[Step], wait: float) -> None:
    empty = Step(wait, 0, RESERVE)
    assert run([*history, empty, empty])[-1].state is ZERO


@settings(max_examples=100, deadline=None)
@given(histories())
def test_no_sample_below_the_reserve_is_ever_called_ok(history: list[Step]) -> None:
    for sample in run(history):
        assert sample.free is None or sample.kept or sample.state in (LOW, ZERO)
