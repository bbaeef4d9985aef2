"""A bar that leaves an owner out, or figures that do not add up, hide what one is looking for."""

import doctest
from functools import partial
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratadesk.engine.card_events import PowerSample
from stratadesk.engine.events import Event, Phase, PhaseChanged, PromptPlanned, RequestFinished
from stratadesk.engine.vram.phase_table import HeadPlace, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.tui import ascii_filter, cells, mib
from stratadesk.tui.braille import BrailleGrid
from stratadesk.tui.cells import share_cells, span_cells
from stratadesk.tui.free_history import SPAN_S, FreeHistory, FreePoint
from stratadesk.tui.mib import MibScale, scale_of
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.widgets.free_graph import heights
from stratadesk.tui.widgets.request_timeline import RequestTimeline
from stratadesk.tui.widgets.speed_figures import power_note
from stratadesk.units import MIB
from tests.tui import card_script as card
from tests.tui import scripted_engine as script
from tests.tui.card_scenes import SCENES

parts = st.lists(st.integers(0, 10_000), min_size=1, max_size=12)


def after(*events: Event) -> MonitorState:
    state = MonitorState()
    for event in events:
        state = advance(state, event)
    return state


@pytest.mark.parametrize("module", [ascii_filter, cells, mib])
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@given(parts, st.integers(0, 80))
def test_a_stacked_bar_is_as_wide_as_it_should_be(sizes: list[int], width: int) -> None:
    shared = share_cells(sizes, width)
    assert sum(shared) == (width if sum(sizes) else 0)
    assert min(shared) >= 0
    assert all(n == 0 for n, size in zip(shared, sizes, strict=True) if size == 0)


@given(parts, st.integers(24, 80))
def test_a_small_owner_is_still_seen(sizes: list[int], width: int) -> None:
    whole = sum(sizes)
    for n, size in zip(share_cells(sizes, width), sizes, strict=True):
        if whole and size * width / whole >= 0.5 and len(sizes) < width // 4:
            assert n >= 1


@given(st.floats(0, 50), st.floats(0, 50), st.integers(1, 60))
def test_a_span_has_a_place_however_short(start: float, length: float, width: int) -> None:
    first, last = span_cells(start, start + length, 100.0, width)
    assert 0 <= first < last <= width


@given(st.lists(st.integers(0, 9_000 * MIB), max_size=12), st.sampled_from([0, 2]))
def test_rounded_sizes_add_up(sizes: list[int], decimals: int) -> None:
    scale = MibScale(decimals)
    whole = scale.down(sum(sizes))
    shared = scale.shared_out(sizes, whole)
    assert sum(shared) == whole
    for units, size in zip(shared, sizes, strict=True):
        assert abs(units / scale.units - size / MIB) < 1 / scale.units


def test_small_cards_have_decimals() -> None:
    assert scale_of(6 * MIB).text(MIB // 2) == "0.50"
    assert scale_of(8_151 * MIB).text(1_640 * MIB) == "1,640"
    assert scale_of(8_151 * MIB).text(MIB - 1) == "0"
    assert scale_of(8_151 * MIB).text(None) == "N/A"


def test_braille_dots_are_where_they_belong() -> None:
    grid = BrailleGrid(1, 1)
    grid.dot(0, 0)
    grid.dot(1, 3)
    grid.dot(5, 5)
    assert grid.lines() == ["⡈"]


def test_a_curve_joins_its_points_and_leaves_gaps() -> None:
    grid = BrailleGrid(2, 1)
    grid.curve([0, 3, None, 1])
    assert grid.lines() == ["⣸⠠"]


def test_the_lowest_figure_of_a_column_is_drawn() -> None:
    points = (FreePoint(0.0, 400), FreePoint(59.6, 0), FreePoint(59.8, 400))
    drawn = heights(points, 60.0, 400, 60, 12)
    assert drawn[-1] == 0
    assert drawn[0] == drawn[1] == 11


def test_what_is_not_known_is_a_gap() -> None:
    points = (FreePoint(30.0, 400), FreePoint(31.0, None), FreePoint(50.0, 400))
    drawn = heights(points, 60.0, 400, 61, 12)
    assert drawn[29] is None
    assert drawn[30] is not None
    assert drawn[40] is None
    assert drawn[52] is not None
    assert drawn[58] is None


def test_the_history_forgets_what_is_older_than_a_minute() -> None:
    history = FreeHistory()
    for second in range(200):
        history = history.with_status(card.sample(float(second), second * MIB).status)
    assert [history.points[0].at, history.points[-1].at] == [199 - SPAN_S, 199]
    assert history.most == 199 * MIB


def drawn(state: MonitorState, width: int = 46) -> list[str]:
    return RequestTimeline().draw(state, width).plain.split("\n")


def test_the_timeline_is_to_scale() -> None:
    """Four seconds of reading in four chunks, then four of writing: forty cells."""
    state = after(
        *card.loaded(100.0),
        PhaseChanged(Phase.PROMPT, 100.0),
        script.started(1, prompt=4_000),
        card.memory_phase(VramState.PROMPT, 100.0, layout=Layout.LOAN, slots=190),
        *(script.reading(1, read, 4_000) for read in (1_000, 2_000, 3_000)),
        card.memory_phase(VramState.RETURNING, 104.0, layout=Layout.LOAN, slots=190),
        card.memory_phase(VramState.DECODING, 104.001, return_s=0.001),
        PhaseChanged(Phase.DECODING, 104.001),
        card.cache(104.01, reserved=190),
        card.cache(106.0, refilled=180),
        script.finished(1, "x", tokens=80),
        PhaseChanged(Phase.READY, 108.0),
    )
    title, time, head, _, words = drawn(state)
    assert title.endswith("8.0 s")
    assert time == "time  " + "▓" * 5 + "░" * 5 + "▓" * 5 + "░" * 5 + "<" + "━" * 19
    assert head == "head  " + "H" * 40
    assert words == "3 chunks 4.0 s · 80 tokens"


def test_lanes_tell_what_was_lent_and_when_it_was_back(still: float) -> None:
    _, time, head, slots, words = drawn(after(*SCENES["decoding"](still)))
    assert set(head[6:]) == {"H"}
    assert slots[6] == "▞"
    assert list(dict.fromkeys(slots[6:])) == ["▞", "r", "▒"]
    assert "<" in time
    assert "190 lent, 190 refilled" in words
    out = drawn(after(*SCENES["head-out"](still)))
    assert set(out[2][6:]) == {"▞"}
    assert set(out[3][6:]) == {"·"}


def test_an_ended_request_stays_as_it_was(still: float) -> None:
    ended = after(*SCENES["decoding"](still), PhaseChanged(Phase.READY, still))
    later = advance(ended, card.cache(still + 50, reserved=3))
    assert later.trace == ended.trace
    assert drawn(later)[0].startswith("Last request")


def test_a_cancelled_prompt_is_told_to_its_end() -> None:
    state = after(
        PhaseChanged(Phase.PROMPT, 10.0),
        script.started(1, prompt=4_000),
        script.reading(1, 1_000, 4_000),
        PhaseChanged(Phase.CANCELLING, 12.0),
        card.memory_phase(
            VramState.CANCELLING, 12.0, layout=Layout.ALIAS, head=HeadPlace.RETURNING
        ),
        card.memory_phase(VramState.READY, 12.1),
        PhaseChanged(Phase.READY, 12.1),
    )
    assert state.trace is not None
    assert state.trace.seconds == pytest.approx(2.1)
    assert state.trace.decoding_at is None
    assert (state.trace.returning_at, state.trace.back_at) == (12.0, 12.1)


def stopped_while_writing(*reading: Event) -> MonitorState:
    """A request that wrote from 104 to 108 s, and was stopped then."""
    return after(
        *card.loaded(100.0),
        PhaseChanged(Phase.PROMPT, 100.0),
        script.started(1, prompt=4_000),
        *reading,
        PhaseChanged(Phase.DECODING, 104.0),
        PhaseChanged(Phase.CANCELLING, 108.0),
        card.memory_phase(VramState.CANCELLING, 108.0, return_s=0.01),
        card.memory_phase(VramState.READY, 108.0, return_s=0.01),
        script.finished(1, "x", tokens=80),
        PhaseChanged(Phase.READY, 108.0),
    )


def test_stopping_an_answer_returns_nothing_a_second_time() -> None:
    """Once the head is back, a stop is no reason to draw it as lent through the writing."""
    lent = partial(card.memory_phase, layout=Layout.ALIAS, slots=190)
    state = stopped_while_writing(
        PromptPlanned(1, "prompt", "alias", 2_048, 190, True, 4.0, ""),
        lent(VramState.PROMPT, 100.0, head=HeadPlace.OUT),
        script.reading(1, 4_000, 4_000),
        lent(VramState.RETURNING, 103.9, head=HeadPlace.RETURNING),
        card.memory_phase(VramState.DECODING, 104.0, return_s=0.01),
    )
    _, time, head, slots, words = drawn(state, 60)
    assert set(head[-26:]) == set("H")
    assert set(time[-26:]) == {"━"}
    assert "▞" not in slots[-26:]
    assert words.startswith("1 chunk 3.9 s")
    assert "head back 10 ms" in words


def test_stopping_an_answer_whose_prompt_lent_nothing_returns_nothing() -> None:
    state = stopped_while_writing(
        PromptPlanned(1, "decode", "", 16, 0, False, 4.0, ""),
        card.memory_phase(VramState.DECODING, 100.0),
        script.reading(1, 4_000, 4_000),
    )
    _, time, head, _, words = drawn(state, 60)
    assert "<" not in time
    assert set(head[6:]) == {"H"}
    assert words == "1 chunk 4.0 s · 80 tokens"


@pytest.mark.parametrize(
    ("power", "note"),
    [
        (None, ""),
        (PowerSample(None, None, None), ""),
        (PowerSample(on_battery=False, percent=80.0, throttled=()), ""),
        (PowerSample(on_battery=True, percent=43.0, throttled=None), "on battery"),
        (
            PowerSample(on_battery=True, percent=43.0, throttled=("power", "heat")),
            "on battery · throttled: power, heat",
        ),
    ],
)
def test_what_slows_the_machine_down_is_named_and_nothing_is_made_up(
    power: PowerSample | None, note: str
) -> None:
    assert power_note(power) == note


def test_finished_requests_are_counted_by_their_tokens() -> None:
    finished = script.finished(1, "x", tokens=7)
    assert isinstance(finished, RequestFinished)
    state = after(PhaseChanged(Phase.PROMPT, 1.0), script.started(1), finished)
    assert state.trace is not None
    assert state.trace.tokens == 7
