"""A figure on the monitor that no event has told is worse than none.

Random sequences of events, impossible ones among them, are shown; then every number that the
monitor draws is looked up in what was told last.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from stratadesk.engine.card_events import CacheSample, CardSettings, PowerSample
from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestStarted,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.vram.ledger import Ledger, LedgerLine
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.states import MemoryState, MemoryWatch, is_zero
from stratadesk.tui import card_shares, moment
from stratadesk.tui.figures import link_speed, percent, rate
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.widgets.alarm_bar import AlarmBar
from stratadesk.tui.widgets.card_bar import CardBar
from stratadesk.tui.widgets.card_legend import CardLegend, CardSources
from stratadesk.tui.widgets.expert_figures import ExpertFigures
from stratadesk.tui.widgets.free_graph import FreeGraph
from stratadesk.tui.widgets.head_line import HeadLine
from stratadesk.tui.widgets.phase_banner import PhaseBanner
from stratadesk.tui.widgets.reading_plan import PlanReason, ReadingPlan
from stratadesk.tui.widgets.request_timeline import RequestTimeline
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.slot_figures import SlotFigures, slot_figures
from stratadesk.tui.widgets.speed_figures import SpeedFigures
from stratadesk.tui.widgets.status_line import StatusLine
from stratadesk.tui.widgets.title_bar import TitleBar
from stratadesk.units import MIB
from tests.tui import card_script as card

SECTIONS = (
    PhaseBanner,
    SpeedFigures,
    ReadingPlan,
    PlanReason,
    HeadLine,
    SlotFigures,
    ExpertFigures,
    CardBar,
    CardLegend,
    CardSources,
    FreeGraph,
    RequestTimeline,
    AlarmBar,
    StatusLine,
    TitleBar,
)
EXAMPLES = 80
NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?")

sizes = st.one_of(st.just(0), st.integers(0, 9_000 * MIB))
times = st.floats(0, 1_000)
counts = st.integers(0, 20_000)
spans = st.one_of(st.just(0.0), st.floats(1e-6, 100))
"""Seconds that a clock can tell apart from none."""


def ledgers() -> st.SearchStrategy[Ledger]:
    owners = (*card.USUAL, "something new")
    lines = st.tuples(*(st.builds(LedgerLine, st.just(owner), sizes) for owner in owners))
    totals = st.sampled_from((6 * MIB, 8_151 * MIB, 8_151 * MIB + 12_345, 24_564 * MIB))
    return st.builds(Ledger, totals, sizes, sizes, lines, st.booleans())


caches = st.builds(
    CacheSample,
    at=times,
    window_s=st.floats(0.1, 2),
    link_bytes=st.one_of(st.none(), sizes),
    **dict.fromkeys(
        (
            *("slots", "holding", "filling", "empty", "lent", "reserved", "refilled", "pinned"),
            *("window_hits", "window_misses", "answer_hits", "answer_misses", "pageable"),
        ),
        counts,
    ),
    pinned_bytes=sizes,
    pageable_bytes=sizes,
)
phases = st.builds(
    VramPhase,
    state=st.sampled_from(VramState),
    at=times,
    layout=st.one_of(st.none(), st.sampled_from(Layout)),
    bytes_lent=sizes,
    slots_lent=counts,
    head=st.sampled_from(HeadPlace),
    head_bytes=sizes,
    return_s=st.floats(0, 3),
    arena_end=sizes,
    ledger=ledgers(),
)
planned = st.builds(
    PromptPlanned,
    st.just(1),
    st.sampled_from(("prompt", "decode")),
    st.sampled_from(("", *Layout)),
    st.integers(1, 8_192),
    counts,
    st.booleans(),
    st.floats(0, 10),
    st.just("bound by the link"),
)


@st.composite
def progress(draw: Callable[..., int]) -> PromptProgress:
    total = draw(st.integers(1, 40_000))
    reused = draw(st.integers(0, total))
    read = draw(st.integers(0, total - reused))
    return PromptProgress(1, read, reused, total, draw(spans), draw(st.integers(1, 8_192)))


@st.composite
def samples(draw: Callable[..., int]) -> VramSample:
    """What a state machine makes of one figure or two."""
    watch = MemoryWatch(draw(sizes))
    at = draw(times)
    for i in range(draw(st.integers(1, 3))):
        status = watch.push(card.reading(at + i / 4, draw(st.one_of(st.none(), sizes))))
    return VramSample(status, draw(ledgers()))


events = st.one_of(
    st.builds(PhaseChanged, st.sampled_from(Phase), times),
    st.builds(RequestStarted, st.just(1), counts, counts, st.just("")),
    planned,
    progress(),
    st.builds(DecodeProgress, st.just(1), counts, counts, spans, counts, counts),
    phases,
    samples(),
    caches,
    st.builds(
        CardSettings,
        st.sampled_from(HeadAlias),
        st.sampled_from(HeadAlias),
        sizes,
        st.just(64 * MIB),
        counts,
    ),
    st.builds(ReserveApplied, sizes, sizes, counts, st.booleans(), st.just("")),
    st.builds(PowerSample, st.one_of(st.none(), st.booleans()), st.none(), st.just(("power",))),
)


def shown(sequence: list[Event]) -> MonitorState:
    state = MonitorState()
    for event in sequence:
        state = advance(state, event)
    return state


def text(section: type[Section], state: MonitorState, width: int = 55) -> str:
    return section().draw(state, width).plain


@given(st.lists(events, max_size=12), st.integers(25, 60))
@settings(max_examples=EXAMPLES, deadline=None)
def test_nothing_fails_and_no_row_is_too_wide(sequence: list[Event], width: int) -> None:
    state = shown(sequence)
    for section in SECTIONS:
        for row in text(section, state, width).split("\n"):
            assert cell_len(row) <= width, section


@given(st.lists(events, max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_books_on_screen_are_those_told_last(sequence: list[Event]) -> None:
    state = shown(sequence)
    told = [event.ledger for event in sequence if isinstance(event, VramPhase | VramSample)]
    resets = [i for i, e in enumerate(sequence) if _starts_over(e)]
    told_after = [
        event.ledger
        for event in sequence[resets[-1] + 1 if resets else 0 :]
        if isinstance(event, VramPhase | VramSample)
    ]
    assert state.ledger == (told_after[-1] if told_after else None)
    assert state.ledger is None or state.ledger in told
    if state.ledger is not None:
        _check_legend(state.ledger, text(CardLegend, state), text(CardBar, state))


def _starts_over(event: Event) -> bool:
    return isinstance(event, PhaseChanged) and event.phase in (Phase.EMPTY, Phase.LOADING)


def _check_legend(ledger: Ledger, legend: str, bar: str) -> None:
    """Each owner's figure is within a unit of the truth, and all of them add up to the card."""
    scale = scale_of(ledger.total)
    rows = legend.split("\n")
    cells = [*(row[:26] for row in rows), *(row[28:] for row in rows)]
    written = [_value(cell) for cell in cells if cell.strip()]
    shares = card_shares.card_shares(ledger)
    assert len(written) == len(shares) - 1
    for value, share in zip(written, shares, strict=False):
        assert abs(value - share.n_bytes / MIB) <= 1 / scale.units, share
    free = _value(bar.split("\n")[2][:26])
    assert free == _number(scale.text(ledger.free))
    together = sum(written) + free
    assert abs(together - _number(scale.text(ledger.total))) < 0.5 / scale.units
    assert _value(bar.split("\n", 1)[0]) == _number(scale.text(ledger.total))
    assert _value(bar.split("\n")[2][28:]) == _number(scale.text(ledger.reserve))


def _number(written: str) -> float:
    return float(written.replace(",", "").replace("−", "-"))


def _value(cell: str) -> float:
    return _number(NUMBER.findall(cell.removesuffix(" MiB"))[-1])


@given(st.lists(events, max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_slots_hits_and_link_are_those_told_last(sequence: list[Event]) -> None:
    state = shown(sequence)
    cache = state.cache
    drawn = NUMBER.findall(text(SlotFigures, state))
    assert drawn == [n for n in slot_figures(cache) if n != "–"]
    if cache is None:
        return
    told = (cache.slots, cache.holding, cache.lent, cache.reserved, cache.empty + cache.filling)
    assert drawn == [f"{count:,}" for count in told]
    experts = text(ExpertFigures, state)
    assert f"pinned {cache.pinned:,} · pageable {cache.pageable:,}" in experts
    assert percent(cache.answer_rate) in experts
    writing = state.phase is Phase.DECODING
    assert (f"now {percent(cache.window_rate)}" in experts) is writing
    assert text(ExpertFigures, state, 25).startswith("Hits "), "the narrowest keeps the label"
    speed = text(SpeedFigures, state)
    if writing and cache.link_rate is not None:
        assert f"link {link_speed(cache.link_rate)}" in speed
    else:
        assert "link" not in speed


@given(st.lists(events, max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_speeds_are_right_and_gone_outside_their_phase(sequence: list[Event]) -> None:
    state = shown(sequence)
    speed = text(SpeedFigures, state)
    prompt, decode = state.prompt, state.decode
    if state.phase is Phase.PROMPT and prompt is not None and prompt.seconds > 0:
        assert rate(prompt.read / prompt.seconds) in speed
        done = (prompt.read + prompt.reused) / prompt.total
        assert f"{done:4.0%}" in speed
    elif state.phase is Phase.DECODING and decode is not None and decode.seconds > 0:
        assert rate(decode.tokens / decode.seconds) in speed
        assert f"{decode.tokens:,} tokens" in speed
    elif state.phase not in (Phase.PROMPT, Phase.DECODING):
        assert not NUMBER.findall(speed)
    assert ("throttled: power" in speed) is (state.power is not None)


@given(st.lists(events, max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_alarm_says_what_the_state_machine_says(sequence: list[Event]) -> None:
    state = shown(sequence)
    alarm = text(AlarmBar, state, 2_000)
    status = state.status
    if status is None or status.state is MemoryState.OK:
        assert alarm == ""
        return
    if status.state is MemoryState.LOST:
        assert "NO READING" in alarm
        return
    free = "N/A" if status.headroom is None else f"{status.headroom // MIB:,} MiB"
    assert f"{free} free" in alarm
    assert f"reserve {status.reserve // MIB:,} MiB" in alarm
    nothing = status.headroom is not None and is_zero(status.headroom)
    if status.state is MemoryState.ZERO and nothing:
        assert "!!! EMPTY" in alarm
        assert "Windows is moving parts of it to RAM" in alarm
    if status.reserve_kept:
        assert "WAS" in alarm


@given(st.lists(events, max_size=12))
@settings(max_examples=EXAMPLES, deadline=None)
def test_head_and_layout_are_those_told_last(sequence: list[Event]) -> None:
    state = shown([*sequence, card.sample(1.0)])
    head = text(HeadLine, state)
    if state.vram is not None and state.vram.head_bytes:
        assert {"in": "in ·", "out": "OUT", "returning": "RETURNING"}[state.vram.head] in head
        size = scale_of(state.vram.ledger.total).nearest(state.vram.head_bytes)
        assert f"{size} MiB" in head
    if state.planned is not None:
        assert f"chunk {state.planned.chunk:,}" in text(ReadingPlan, state)
        assert "bound by the link" in text(PlanReason, state)


def test_a_figure_that_is_old_says_so() -> None:
    state = shown([*card.loaded(moment.now() - 30), card.sample(moment.now() - 7)])
    assert "7 s old" in text(CardSources, state)
    fresh = advance(state, card.sample(moment.now()))
    assert "old" not in text(CardSources, fresh)


def test_what_was_read_before_a_reading_failed_is_not_drawn_as_known() -> None:
    now = moment.now()
    state = shown([*card.loaded(now - 30), card.sample(now - 29)])
    graph = text(FreeGraph, replace(state), 60).split("\n")[1:4]
    assert all(set(row[-22:-12]) <= {"\u2800", "\u2802"} for row in graph)
