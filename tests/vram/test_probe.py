"""Guards against a probe that slows the answer down, samples when nobody asks, or imports much.

It has no thread: the engine asks it. Twice a second is enough, four times in an alarm. And it
must not draw in CUDA, Textual, Numba or NumPy.
"""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from stratadesk.engine.vram.probe import HURRY_S, INTERVAL_S, Probe, VramProbe
from stratadesk.engine.vram.recording import Recorder, load_recording
from stratadesk.engine.vram.replay import ReplayProbe, replay
from stratadesk.engine.vram.states import MemoryState
from tests.vram.probe_helpers import RESERVE, Clock, ScriptedReader

OK, LOW, ZERO, LOST = MemoryState.OK, MemoryState.LOW, MemoryState.ZERO, MemoryState.LOST


def taken(probe: VramProbe, clock: Clock, seconds: float) -> list[tuple[float, MemoryState]]:
    """Ask 100 times a second; return when samples came and what they said."""
    start, seen = clock.now, []
    for tick in range(round(seconds * 100)):
        clock.now = start + tick / 100
        status = probe.take_if_due()
        if status is not None:
            seen.append((round(clock.now - start, 2), status.state))
    return seen


def test_two_samples_a_second_while_all_is_well() -> None:
    clock = Clock()
    probe = Probe(ScriptedReader([700] * 9), RESERVE, clock=clock)
    assert taken(probe, clock, 2) == [(0, OK), (0.5, OK), (1.0, OK), (1.5, OK)]
    assert (INTERVAL_S, HURRY_S) == (0.5, 0.25)


def test_four_a_second_in_an_alarm_and_then_the_programs_are_asked_for() -> None:
    clock = Clock()
    reader = ScriptedReader([700, 0, 0, 300, 300])
    probe = Probe(reader, RESERVE, clock=clock)
    assert taken(probe, clock, 1.3) == [
        (0, OK),
        (0.5, LOW),
        (0.75, ZERO),
        (1.0, ZERO),
        (1.25, ZERO),
    ]
    assert reader.urgent == [False, False, True, True, True]


def test_four_a_second_while_a_phase_changes() -> None:
    clock = Clock()
    probe = Probe(ScriptedReader([700] * 9), RESERVE, clock=clock)
    probe.hurry(0.6)
    assert [at for at, _ in taken(probe, clock, 1.6)] == [0, 0.25, 0.5, 1.0, 1.5]


def test_nothing_is_read_unless_it_is_asked() -> None:
    clock = Clock()
    reader = ScriptedReader([700, 700])
    probe = Probe(reader, RESERVE, clock=clock)
    assert probe.status().state is LOST
    probe.take()
    clock.now += 5
    assert probe.status().state is OK
    clock.now += 1
    assert probe.status().state is LOST
    assert len(reader.urgent) == 1
    assert probe.seconds_left() == 0


def test_a_new_reserve_counts_from_the_next_sample() -> None:
    clock = Clock()
    probe = Probe(ScriptedReader([700, 700]), RESERVE, clock=clock)
    assert probe.take().state is OK
    probe.reserve = 2 * RESERVE
    assert probe.take().state is LOW
    assert probe.reserve == 2 * RESERVE


def test_what_it_records_replays(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "memory.jsonl"
    free = [700, 0, 0, 300] + [600] * 30
    reader = ScriptedReader(free)
    probe = Probe(reader, RESERVE, clock=clock, recorder=Recorder(path))
    seen = [state for _, state in taken(probe, clock, 7)]
    probe.close()
    assert reader.closed
    assert {OK, LOW, ZERO} == set(seen)
    recording = load_recording(path)
    assert [status.state for status in replay(recording)] == seen
    again = Clock()
    played = taken(ReplayProbe(recording, again), again, 7.1)
    assert [state for _, state in played] == seen


def test_a_full_disk_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "write", full)
    recorder = Recorder(tmp_path / "memory.jsonl")
    probe = Probe(ScriptedReader([700, 700]), RESERVE, clock=Clock(), recorder=recorder)
    with caplog.at_level(logging.WARNING):
        assert probe.take().state is OK
        assert probe.take().state is OK
    assert caplog.text.count("No space left on device") == 1
    probe.close()


def test_the_probe_draws_in_nothing_heavy() -> None:
    code = (
        "import sys, stratadesk.engine.vram.live_reader, stratadesk.engine.vram.probe\n"
        "import stratadesk.engine.vram.replay, stratadesk.engine.vram.wording\n"
        "heavy = {'cupy', 'cuda.bindings', 'textual', 'numba', 'numpy', 'pynvml', 'rich'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
