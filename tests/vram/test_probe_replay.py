"""Guards against a recording that tells another story than the one that was seen.

A bug report is only as good as its replay: the same readings must lead to the same states, a
crash in mid-line must not spoil the file, and N/A must not come back as 0.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.readings import (
    CardFigure,
    Growth,
    MemoryReading,
    ProgramList,
    ProgramUse,
    Source,
)
from stratadesk.engine.vram.recording import (
    Recorder,
    Recording,
    Sample,
    decode,
    encode,
    load_recording,
)
from stratadesk.engine.vram.replay import ReplayProbe, replay
from stratadesk.engine.vram.states import MemoryState, MemoryStatus, MemoryWatch
from stratadesk.errors import UsageError
from stratadesk.units import MIB
from tests.vram.probe_helpers import RESERVE, Clock, reading

OK, LOW, ZERO, LOST = MemoryState.OK, MemoryState.LOW, MemoryState.ZERO, MemoryState.LOST

sizes = st.none() | st.integers(0, 2**40)
texts = st.text(max_size=12)
figures = st.builds(
    CardFigure, st.sampled_from(Source), sizes, sizes, sizes, sizes, sizes, why=texts
)
uses = st.builds(ProgramUse, st.integers(0, 2**31), st.none() | texts, sizes, sizes)
lists = st.builds(
    ProgramList, st.sampled_from(Source), st.none() | st.lists(uses, max_size=3).map(tuple), texts
)
readings = st.builds(
    MemoryReading,
    at=st.floats(0, 1e9),
    driver_model=st.sampled_from(DriverModel),
    figures=st.lists(figures, max_size=4).map(tuple),
    programs=st.none() | lists,
    own_dedicated=sizes,
    own_shared=sizes,
    grew=st.none() | st.builds(Growth, texts, st.integers(0, 9999), st.integers(0, 2**40)),
)


@settings(max_examples=150)
@given(readings, st.integers(0, 2**40), st.sampled_from(MemoryState), st.booleans())
def test_every_sample_survives_as_one_line(
    sampled: MemoryReading, reserve: int, state: MemoryState, starts: bool
) -> None:
    sample = Sample(sampled, reserve, state, starts)
    line = encode(sample)
    assert "\n" not in line
    assert decode(line) == sample


def record(path: Path, samples: list[tuple[float, float | None, int]]) -> list[MemoryState]:
    """Record (seconds, free MiB, reserve MiB) as the probe does; return the states seen."""
    recorder, watch, seen = Recorder(path), MemoryWatch(0), []
    for at, free, reserve in samples:
        watch.reserve = reserve * MIB
        status = watch.push(reading(at, free))
        recorder.write(reading(at, free), watch.reserve, status.state)
        seen.append(status.state)
    recorder.close()
    return seen


samples = st.lists(
    st.tuples(
        st.sampled_from((0.25, 0.5, 2.5, 5.0, 9.0)),
        st.sampled_from((None, 0, 0, 300, 589.9, 590, 4000, 4000)),
        st.sampled_from((590, 590, 0, 4096)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(samples, min_size=1, max_size=3))
def test_replay_leads_to_the_states_that_were_seen(
    tmp_path_factory: pytest.TempPathFactory,
    sessions: list[list[tuple[float, float | None, int]]],
) -> None:
    path = tmp_path_factory.mktemp("recording") / "memory.jsonl"
    seen = []
    for session in sessions:
        at, timed = 1000.0, []
        for wait, free, reserve in session:
            at += wait
            timed.append((at, free, reserve))
        seen += record(path, timed)
    recording = load_recording(path)
    assert [sample.state for sample in recording.samples] == seen
    assert [status.state for status in replay(recording)] == seen
    assert [sample.starts for sample in recording.samples].count(True) == len(sessions)


def test_a_figure_that_is_missing_is_null_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    record(path, [(0, None, 590)])
    fields = json.loads(path.read_text())
    assert fields["reading"]["figures"][0]["free"] is None
    assert load_recording(path).samples[0].reading.headroom is None


def test_a_line_cut_off_by_a_crash_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    record(path, [(0, 700, 590), (1, 600, 590)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert [s.reading.at for s in load_recording(path).samples] == [0]
    record(path, [(5, 500, 590)])
    recording = load_recording(path)
    assert [s.reading.at for s in recording.samples] == [0, 5]
    assert recording.torn == (2,)
    assert recording.samples[1].starts


def test_what_is_written_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    recorder = Recorder(path)
    recorder.write(reading(0, 700), RESERVE, OK)
    assert len(load_recording(path).samples) == 1
    recorder.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "line 2 is no memory reading of this version: format 2, not 1."),
        ({"reserve": -1}, "-1 is no number of bytes"),
        ({"reserve": "590"}, "'590' is no number of bytes"),
        ({"state": "fine"}, "'fine' is not a valid MemoryState"),
        ({"reading": {}}, "line 2"),
        ({"reading": None}, "line 2"),
    ],
)
def test_a_line_of_something_else_is_refused_in_one_sentence(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "memory.jsonl"
    line = encode(Sample(reading(0, 700), RESERVE, OK))
    path.write_text(f"{line}\n{json.dumps({**json.loads(line), **change})}\n")
    with pytest.raises(UsageError) as caught:
        load_recording(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", ["", "\n\n", "no JSON\n", "5\n", "[1]\n", '{"format":1,"at":NaN']
)
def test_a_file_without_a_reading_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError):
        load_recording(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_recording(tmp_path / "none")


# --- played as if it were live -----------------------------------------------------------


def recorded(*samples: tuple[float, float | None], start: float = 0.0) -> tuple[Sample, ...]:
    return tuple(
        Sample(reading(start + at, free), RESERVE, OK, starts=number == 0)
        for number, (at, free) in enumerate(samples)
    )


def test_samples_come_when_they_came() -> None:
    clock = Clock(50.0)
    played = ReplayProbe(Recording(recorded((0, 700), (0.5, 0), (1, 0), start=9000)), clock)
    assert played.status().state is LOST
    first = played.take_if_due()
    assert first is not None
    assert (first.state, first.reading and first.reading.at) == (OK, 50.0)
    assert played.take_if_due() is None
    assert played.seconds_left() == pytest.approx(0.5)
    clock.now = 50.5
    second = played.take_if_due()
    assert second is not None
    assert second.state is LOW
    assert played.reserve == RESERVE


def test_no_sample_is_left_out_however_seldom_it_is_asked() -> None:
    clock = Clock()
    played = ReplayProbe(Recording(recorded((0, 0), (0.5, 0), (1, 600), (2, 600))), clock)
    clock.now += 10
    status = played.take_if_due()
    assert status is not None
    assert status.state is ZERO
    assert played.take_if_due() is None
    assert played.seconds_left() is None
    assert played.status().state is LOST
    played.close()


def test_sessions_follow_each_other_whatever_their_clocks_said() -> None:
    both = recorded((0, 0), (1, 0), start=9000) + recorded((0, 700), (1, 700), start=3)
    clock = Clock()
    played = ReplayProbe(Recording(both), clock)
    seen = []
    for tick in range(8):
        clock.now = 100 + tick / 2
        status = played.take_if_due()
        seen.append(status.state if status else None)
    assert seen == [LOW, None, ZERO, None, OK, None, OK, None]


# --- recordings that travel with the tests ------------------------------------------------


def told(path: Path) -> tuple[list[MemoryStatus], list[tuple[float, MemoryState]]]:
    """Replay a file: every status, and the seconds since its start at which the state changed."""
    recording = load_recording(path)
    seen = list(replay(recording))
    assert [status.state for status in seen] == [sample.state for sample in recording.samples]
    start = recording.samples[0].reading.at
    changes = [(0.0, seen[0].state)]
    for before, after in pairwise(seen):
        if after.state is not before.state and after.reading:
            changes.append((round(after.reading.at - start, 2), after.state))
    return seen, changes


def test_wddm_a_browser_takes_the_rest_of_the_budget(data_dir: Path) -> None:
    """Made with the stand-ins of `fake_windows.py`, not on Windows."""
    seen, changes = told(data_dir / "probe" / "wddm_browser_grows.jsonl")
    assert changes == [(0.0, OK), (2.0, LOW), (2.25, ZERO), (11.0, OK)]
    empty = next(status for status in seen if status.state is ZERO)
    assert (empty.headroom, empty.source) == (0, Source.DXGI)
    assert empty.grew == Growth("chrome.exe", 4242, 412 * MIB)
    assert empty.reading is not None
    assert empty.reading.driver_model is DriverModel.WDDM
    assert empty.reading.own_shared == 212 * MIB


def test_linux_another_process_takes_two_gib_and_goes(data_dir: Path) -> None:
    """Recorded on an H200, driver 580: this process held 1 GiB, another took 2 GiB for 4 s."""
    seen, changes = told(data_dir / "probe" / "linux_h200.jsonl")
    assert changes == [(0.0, OK), (2.52, LOW), (11.47, OK)]
    low = next(status for status in seen if status.grew)
    assert low.grew == Growth("python3", 421, 2566 * MIB)
    assert low.reading is not None
    assert [figure.source for figure in low.reading.figures] == [Source.CUDA, Source.NVML]
    assert low.reading.figures[0].free == low.reading.figures[1].free
    assert low.reading.own_dedicated == 1542 * MIB
