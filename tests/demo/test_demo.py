"""A demo that shows what no engine would say, or passes a script off as a recording."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from stratadesk.cli.demo_command import build_app
from stratadesk.cli.parser import build_parser
from stratadesk.demo import laptop, script
from stratadesk.demo.codec import decode, encode
from stratadesk.demo.recording import Moment, packaged_recording, parse_recording, written
from stratadesk.demo.replay_engine import ReplayEngine
from stratadesk.engine.card_events import CacheSample, DeviceLost, PowerSample, Provenance
from stratadesk.engine.commands import (
    Cancel,
    Generate,
    LoadModel,
    Message,
    PreviewReserve,
    SetHeadAlias,
    SetReserve,
)
from stratadesk.engine.events import (
    EngineStopped,
    Event,
    Failure,
    FinishReason,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptPlanned,
    RequestFinished,
    ReserveApplied,
    VramSample,
)
from stratadesk.engine.vram.phase_table import NEXT_STATES, HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.engine.vram.states import MemoryState
from stratadesk.errors import UsageError
from stratadesk.units import MIB
from tests.tui import card_script as card
from tests.tui.card_scenes import SCENES
from tests.tui.looking import text_of, wait_for_text

UNEXPLAINED_LIMIT = 16 * MIB


class Clock:
    """A clock that steps move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def played(steps: Iterator[script.Step], clock: Clock) -> list[Event]:
    """All events of steps, the clock going on as they say."""
    events = []
    for delay, event in steps:
        events.append(event)
        clock.now += delay
    return events


def run_script() -> tuple[list[Event], laptop.Laptop]:
    clock, card_now = Clock(), laptop.Laptop()
    loading = played(script.load(card_now, clock), clock)
    return [*loading, *played(script.answer(card_now, 1, clock), clock)], card_now


def of(events: list[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("scene", SCENES)
def test_every_event_survives_being_written(scene: str) -> None:
    for event in (*SCENES[scene](100.0), DeviceLost(1.0, "why"), PowerSample(True, 3.5, ("x",))):
        assert decode(json.loads(json.dumps(encode(event)))) == event


def test_a_resize_survives_too() -> None:
    from dataclasses import replace

    from stratadesk.engine.vram.resizing import Resize

    phase = card.memory_phase(VramState.READY, 1.0)
    event = replace(phase, resize=Resize(3, 2, 1, done=True, limitation="floor"))
    assert decode(json.loads(json.dumps(encode(event)))) == event


@pytest.mark.parametrize(
    "line", ['{"type": "Nothing"}', '{"type": "PhaseChanged", "phase": "flying", "at": 1.0}', "{}"]
)
def test_an_event_of_another_version_is_refused_in_words(line: str) -> None:
    with pytest.raises(UsageError):
        decode(json.loads(line))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99, "words": "", "question": ""}'])
def test_a_damaged_recording_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError):
        parse_recording(text)


def test_the_recording_is_read_as_it_was_written() -> None:
    recording = packaged_recording()
    assert parse_recording(written(recording)) == recording


def test_the_recording_is_of_a_real_run_and_names_no_folder() -> None:
    recording = packaged_recording()
    events = [moment.event for moment in (*recording.loading, *recording.answer)]
    for kind in (ModelLoaded, PromptPlanned, VramSample, CacheSample, RequestFinished):
        assert of(events, kind), kind
    places = {event.head for event in of(events, VramPhase) if isinstance(event, VramPhase)}
    assert places == set(HeadPlace)
    text = written(recording)
    for folder in ("/home", "/root", "/tmp", "/work", "Users"):
        assert folder not in text


def test_times_never_go_back() -> None:
    recording = packaged_recording()
    times = [moment.at for moment in (*recording.loading, *recording.answer)]
    assert times == sorted(times)


def test_the_script_keeps_the_books() -> None:
    events, _ = run_script()
    ledgers = [event.ledger for event in events if isinstance(event, VramPhase | VramSample)]
    assert len(ledgers) > 20
    for ledger in ledgers:
        assert ledger is not None
        ledger.check(UNEXPLAINED_LIMIT)


def test_the_script_goes_only_where_the_engine_could() -> None:
    events, _ = run_script()
    states = [event.state for event in events if isinstance(event, VramPhase)]
    for before, after in pairwise(states):
        assert after in NEXT_STATES[before] or after is before


def test_the_script_runs_out_of_memory_and_recovers_by_itself() -> None:
    events, card_then = run_script()
    samples = [event.status for event in events if isinstance(event, VramSample)]
    states = list(dict.fromkeys(status.state for status in samples))
    assert states == [MemoryState.OK, MemoryState.LOW, MemoryState.ZERO]
    assert samples[-1].state is MemoryState.OK
    zero = [status for status in samples if status.state is MemoryState.ZERO]
    assert zero[0].headroom == 0
    assert zero[0].grew is not None
    assert zero[0].grew.name == laptop.BROWSER
    (applied,) = (event for event in events if isinstance(event, ReserveApplied))
    assert "chrome.exe took 590 MiB" in applied.reason
    assert card_then.free >= card_then.reserve


def test_the_slots_of_the_script_add_up() -> None:
    for event in run_script()[0]:
        if isinstance(event, CacheSample):
            parts = (event.holding, event.filling, event.empty, event.lent, event.reserved)
            assert sum(parts) == event.slots


def test_a_preview_of_the_script_is_what_is_reached() -> None:
    card_now = laptop.Laptop()
    preview = card_now.preview(526 * MIB)
    assert preview.slots == preview.slots_before + 40
    card_now.reserve = 526 * MIB
    applied = card_now.keep_reserve()
    assert (applied.slots, applied.free) == (preview.slots, preview.free)
    assert applied.free >= 526 * MIB


@pytest.fixture
def engine() -> Iterator[ReplayEngine]:
    recording = packaged_recording()
    # The pauses are left out: only what is said counts here.
    quick = [
        tuple(Moment(0.0, moment.event) for moment in moments)
        for moments in (recording.loading, recording.answer)
    ]
    from dataclasses import replace

    made = ReplayEngine(replace(recording, loading=quick[0], answer=quick[1]))
    made.start()
    yield made
    made.stop()


def until(engine: ReplayEngine, kind: type[Event]) -> list[Event]:
    seen: list[Event] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        event = engine.events.get(1.0)
        if event is not None:
            seen.append(event)
            if isinstance(event, kind):
                return seen
    raise AssertionError(f"no {kind.__name__} among {seen}")


def ask(request_id: int) -> Generate:
    return Generate(request_id, messages=(Message("user", "go"),))


def test_the_engine_says_first_that_it_plays_a_recording(engine: ReplayEngine) -> None:
    engine.send(LoadModel(Path("demo")))
    events = until(engine, ModelLoaded)
    told = of(events, Provenance)
    assert events.index(told[0]) < events.index(events[-1])
    assert told[0] == packaged_recording().provenance


def test_it_answers_the_request_that_it_was_sent(engine: ReplayEngine) -> None:
    engine.send(LoadModel(Path("demo")))
    until(engine, ModelLoaded)
    engine.send(ask(17))
    finished = until(engine, RequestFinished)[-1]
    assert isinstance(finished, RequestFinished)
    assert finished.request_id == 17


def test_a_recording_is_not_changed(engine: ReplayEngine) -> None:
    engine.send(LoadModel(Path("demo")))
    until(engine, ModelLoaded)
    engine.send(SetReserve(MIB))
    assert "cannot be changed" in str(until(engine, Failure)[-1])


def test_the_script_comes_second_is_marked_and_takes_commands(engine: ReplayEngine) -> None:
    engine.send(LoadModel(Path("demo")))
    until(engine, ModelLoaded)
    engine.send(ask(1))
    until(engine, RequestFinished)
    assert engine.question == script.QUESTION
    engine.send(ask(2))
    events = until(engine, ModelLoaded)
    assert script.PROVENANCE in events
    engine.send(PreviewReserve(526 * MIB))
    engine.send(SetHeadAlias(HeadAlias.OFF))
    engine.send(Cancel(2))
    finished = until(engine, RequestFinished)[-1]
    assert isinstance(finished, RequestFinished)
    assert finished.finish_reason is FinishReason.CANCELLED
    ready = until(engine, PhaseChanged)[-1]
    assert isinstance(ready, PhaseChanged)
    assert ready.phase is Phase.READY


def test_stopping_twice_is_harmless(engine: ReplayEngine) -> None:
    engine.stop()
    assert until(engine, EngineStopped)
    engine.stop()


async def test_the_demo_asks_by_itself_and_is_marked_on_screen() -> None:
    engine = ReplayEngine(packaged_recording())
    app = build_app(engine, {"ascii": False})
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "StrataDesk  RECORDED")
        await wait_for_text(pilot, "READING")
        await wait_for_text(pilot, "simulated card")
        assert "its words are noise" in text_of(app)
        await pilot.resize_terminal(120, 36)
        await wait_for_text(pilot, "lent to the prompt")


def test_the_command_is_there() -> None:
    arguments = build_parser().parse_args(["demo", "--ascii"])
    assert arguments.command == "demo"
    assert arguments.ascii is True
