"""Guards against a chat that is lost, kept too long, or mixed up between two programs of one user.

A file that cannot be used must never keep the program from starting.
"""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stratadesk.cli import handover_file
from stratadesk.cli.chat_start import chat_start
from stratadesk.cli.handover_file import (
    CLOCKS_S,
    FRESH_S,
    VARIABLE,
    forget_stale,
    naming,
    take_handover,
    write_handover,
)
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import Device, EngineSettings, KvFormat, Message, SamplingSettings
from stratadesk.engine.vram.machine_facts import MachineFacts, Rates
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import StrataDeskError
from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui.handover import ChatRecord, Handover, Turn, Written

CHAT = ChatRecord(
    (Message("user", "Ünïcode \ud800 and \x1b[2J"), Message("assistant", "yes", "hm")),
    (Turn(said=Written("Ünïcode \ud800", ("a paste\n",))), Turn(remark="A remark.")),
    Written("not sent\nat all"),
    (Written("no answer"),),
)
HANDOVER = Handover(
    "models/m.gguf",
    EngineSettings(kv_format=KvFormat.Q8_0, plan=PlanSettings(reserve=7 << 20)),
    SamplingSettings(temperature=0.25, seed=3, stop=("END",)),
    InterfaceSettings(theme="strata-light"),
    CHAT,
)


def test_all_of_it_comes_back_once_and_the_file_is_gone(own_home: Path) -> None:
    path = write_handover(HANDOVER)
    assert path.parent == own_home / "state"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    environment = {"OTHER": "1", **naming(path)}
    assert take_handover(environment) == HANDOVER
    assert environment == {"OTHER": "1"}, (
        "no program that is started from here takes it for its own"
    )
    assert list(path.parent.iterdir()) == []
    with pytest.raises(StrataDeskError, match="cannot be read: No such file"):
        take_handover(naming(path))


@pytest.mark.parametrize("flags", [(), ("--device", "cuda"), ("--device", "host")])
@pytest.mark.parametrize("device", [Device.HOST, Device.CUDA])
def test_what_was_chosen_in_the_chat_goes_before_the_command_line(
    flags: tuple[str, ...], device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MachineFacts(card=24 << 20, rates=Rates(link=3e9)) if device == "host" else None
    settings = replace(HANDOVER.settings, device=device, machine=machine)
    path = write_handover(replace(HANDOVER, settings=settings))
    monkeypatch.setenv(VARIABLE, naming(path)[VARIABLE])
    start = chat_start(*with_kept(build_parser().parse_args(["-m", "other.gguf", *flags])))
    assert start.settings == settings
    assert (start.model, start.chat) == (Path("models/m.gguf"), CHAT)


@pytest.mark.parametrize("said", [None, "", "x", "../../etc/passwd", "-1", "٣"])
def test_a_start_that_is_told_of_no_file_takes_none(said: str | None) -> None:
    path = write_handover(HANDOVER)
    assert take_handover({} if said is None else {VARIABLE: said}) is None
    assert path.exists(), "it is for another program"


def damaged(written: str) -> list[str]:
    fields = json.loads(written)
    chat = fields["handover"]["chat"]
    return [
        "",
        written[: len(written) // 2],
        "[]",
        "[" * 100_000,
        "null",
        json.dumps({**fields, "at": "noon"}),
        json.dumps({**fields, "handover": {**fields["handover"], "chat": {**chat, "turns": 5}}}),
        json.dumps({**fields, "handover": {**fields["handover"], "model": 5}}),
        json.dumps({**fields, "handover": {**fields["handover"], "more": 5}}),
        json.dumps({**fields, "handover": {"model": None}}),
        json.dumps({**fields, "format": 2}),
        json.dumps({**fields, "at": fields["at"] - 2 * FRESH_S}),
    ]


def test_what_is_damaged_or_old_is_told_and_removed() -> None:
    path = write_handover(HANDOVER)
    for content in damaged(path.read_text("utf-8")):
        path.write_text(content, "utf-8")
        with pytest.raises(StrataDeskError) as caught:
            take_handover(naming(path))
        assert len(str(caught.value)) < 400
        assert caught.value.remedy == "The chat starts empty; ask again."
        assert not path.exists()
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StrataDeskError, match="it is not UTF-8"):
        take_handover(naming(path))


def left_by(number: int, state: Path, age: float = 0.0) -> str:
    """Leave a file as the process of this number would have, so many seconds ago."""
    path = state / f"handover-{number}.json"
    path.touch()
    os.utime(path, (time.time() - age, time.time() - age))
    return path.name


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def living() -> Iterator[int]:
    """The number of a process that goes on."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_what_a_program_that_is_gone_has_left_is_removed_and_what_one_is_to_read_is_not(
    own_home: Path, gone: int, living: int
) -> None:
    """Ctrl+C while Python starts anew ends a program before it could read its file."""
    state = own_home / "state"
    state.mkdir()
    left_by(gone, state)
    left_by(os.getpid(), state)
    left_by(2**80, state)
    (state / f".handover-{gone}.json.x7").touch()
    others = {left_by(living, state), ".handover-x.json.x7", "handover-x.json", "x.json"}
    for name in others:
        (state / name).touch()
    forget_stale()
    assert {each.name for each in state.iterdir()} == others


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a process that has ended has no number")
def test_a_process_that_has_ended_and_is_not_fetched_yet_is_gone(own_home: Path) -> None:
    state = own_home / "state"
    state.mkdir()
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        left_by(process.pid, state)
        forget_stale()
        assert list(state.iterdir()) == []


def test_what_another_process_of_the_same_number_left_is_removed(
    own_home: Path, living: int
) -> None:
    state = own_home / "state"
    state.mkdir()
    left_by(living, state, age=CLOCKS_S + 30.0)
    forget_stale()
    assert list(state.iterdir()) == []


def test_what_is_too_old_to_be_read_is_removed_whoever_lives(own_home: Path, living: int) -> None:
    state = own_home / "state"
    state.mkdir()
    left_by(living, state, age=2 * FRESH_S)
    path = write_handover(HANDOVER)
    assert list(state.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_left(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _text: str) -> None:
        raise StrataDeskError(f"{path} cannot be written: No space left on device.", "Make room.")

    monkeypatch.setattr(handover_file, "replace_text", full)
    with pytest.raises(StrataDeskError, match="No space left"):
        write_handover(HANDOVER)
    assert list((own_home / "state").iterdir()) == []
    (own_home / "state").rmdir()
    (own_home / "state").touch()
    with pytest.raises(StrataDeskError, match=r"The chat cannot be kept in .*: ") as caught:
        write_handover(HANDOVER)
    assert caught.value.remedy == f"{own_home / 'state'} is no folder: move it away, and try again."


def test_a_folder_in_the_place_of_the_file_is_told_like_any_other_obstacle(own_home: Path) -> None:
    place = own_home / "state" / f"handover-{os.getpid()}.json"
    place.mkdir(parents=True)
    with pytest.raises(StrataDeskError, match="is no file"):
        write_handover(HANDOVER)
