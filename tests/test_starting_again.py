"""Guards against a program that says it starts again and is gone, or is not the one that was.

It is started as users start it, on a pseudo-terminal or in a pipe, loses its card, and really puts
another in its place: the same process number, the same command line.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("pseudo-terminals need POSIX", allow_module_level=True)

from stratadesk.cli import start_again as starting
from stratadesk.cli.handover_file import VARIABLE
from stratadesk.errors import StrataDeskError
from tests.conftest import DATA_DIR
from tests.pseudo_terminal import (
    CTRL_Q,
    ROOT,
    Terminal,
    kitty_flags_left,
    modes_left_on,
    terminal,
)

MODEL = str(DATA_DIR / "models" / "qwen3moe-f16.gguf")
F8 = b"\x1b[19~"
AGAIN = b"StrataDesk has started again and kept the chat."

LOSING = """
import os, sys
from stratadesk.engine import loop
from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Generate, LoadModel
from stratadesk.engine.events import Failure, Phase
from stratadesk.cli.handover_file import VARIABLE
from tests.tui import scripted_engine as script

AGAIN = VARIABLE in os.environ
print("process", os.getpid(), "starts", file=sys.stderr, flush=True)

class Engine(script.ScriptedEngine):
    def send(self, command):
        super().send(command)
        if isinstance(command, Generate):
            self.answer(command.request_id, [each.content for each in command.messages])

    def answer(self, number, messages):
        self.say(script.started(number), script.said(number, f"I was told {messages}. "))
        if AGAIN or len(messages) == 1:
            self.say(script.finished(number, f"I was told {messages}. "))
            return
        self.say(script.said(number, "Half an ans"), script.phase(Phase.FAILED))
        self.say(DeviceLost(0.0, "The card is gone."))
        self.say(Failure(number, "GPU lost", "The card is gone.", "Start StrataDesk again.", 4))
        self.say(script.phase(Phase.EMPTY))

loop.Engine = Engine
"""
CONSOLE_SCRIPT = """
import sys
from stratadesk.__main__ import start
sys.exit(start())
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of a project, and no models of this user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def assert_one_process_started_twice(screen: Terminal) -> None:
    assert screen.process is not None
    numbers = re.findall(rb"process (\d+) starts", screen.text)
    assert numbers == [str(screen.process.pid).encode()] * 2


def assert_restored(screen: Terminal) -> None:
    assert modes_left_on(screen.written) == set()
    assert kitty_flags_left(screen.written) == 0
    assert screen.modes() == screen.before
    assert b"Traceback" not in screen.text


@pytest.fixture
def losing(tmp_path: Path) -> dict[str, str]:
    """An environment in which every Python that starts has the engine that loses its card."""
    (tmp_path / "sitecustomize.py").write_text(LOSING)
    (tmp_path / "a console script").write_text(CONSOLE_SCRIPT)
    return {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}


@pytest.mark.parametrize("start", [("-P", "-m", "stratadesk"), ("a console script",)])
def test_the_screen_comes_back_with_the_chat(
    start: tuple[str, ...], losing: dict[str, str], own_home: Path, tmp_path: Path
) -> None:
    with terminal(100, 40) as screen:
        screen.run(*start, "-m", MODEL, "--temp", "0.5", cwd=tmp_path, **losing)
        screen.read_until(b"READY")
        screen.type(b"one\r")
        screen.read_until(b"I was told ['one'].")
        screen.type(b"two\r")
        screen.read_until(b"F8 starts StrataDesk again and keeps the chat")
        screen.type(b"not sent")
        screen.read_until(b"not sent")
        before, screen.written = screen.written, b""
        screen.type(F8)
        screen.read_until(b"StrataDesk starts again; the chat is kept.")
        screen.read_until(b"Demo 30B A3B answers from here on.")
        for said in (b"one", b"I was told ['one'].", b"two", b"Half an ans", b"not sent", AGAIN):
            screen.read_until(said)
        screen.type(b"\r")
        screen.read_until(b"'not sent']")
        screen.written = before + screen.written
        screen.type(CTRL_Q)
        assert screen.wait() == 0
        assert_one_process_started_twice(screen)
        assert_restored(screen)
    assert list((own_home / "state").glob("handover*")) == []


def test_the_line_mode_goes_on_with_the_chat(
    losing: dict[str, str], own_home: Path, tmp_path: Path
) -> None:
    with terminal(100, 40) as screen:
        screen.run("-m", "stratadesk", "--plain", "-m", MODEL, cwd=tmp_path, **losing)
        screen.read_until(b"[ready] Demo 30B A3B")
        screen.type(b"one\n")
        screen.read_until(b"I was told ['one'].")
        screen.type(b"two\n")
        screen.read_until(b"/reload starts StrataDesk again and keeps the chat.")
        screen.type(b"/reload\n")
        screen.read_until(b"[started again] the chat is kept; it goes on with 4 messages.")
        screen.type(b"three\n")
        screen.read_until(b"Half an ans', 'three']")
        screen.type(b"/quit\n")
        assert screen.wait() == 0
        assert_one_process_started_twice(screen)
        assert_restored(screen)
    assert list((own_home / "state").glob("handover*")) == []


def test_lines_that_a_pipe_holds_already_are_for_the_program_that_starts(
    losing: dict[str, str], tmp_path: Path
) -> None:
    typed = "one\ntwo\n/reload\nthree\nfour\n"
    done = subprocess.run(
        [sys.executable, "-m", "stratadesk", "--plain", "-m", MODEL],
        input=typed,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | losing,
        timeout=120,
    )
    assert done.stdout.count("[started again]") == 1
    asked = [line for line in done.stdout.splitlines() if line.startswith("You: ")]
    assert asked == [f"You: {line}" for line in ("one", "two", "/reload", "three", "four", "")]
    assert "'three', " in done.stdout.rpartition("You: four")[2]


@pytest.mark.parametrize("content", ["", "{", '{"format": 1}'])
def test_what_cannot_be_read_keeps_no_one_from_starting(
    content: str, losing: dict[str, str], own_home: Path, tmp_path: Path
) -> None:
    state = own_home / "state"
    state.mkdir()
    (state / "handover-7.json").write_text(content)
    with terminal(100, 40) as screen:
        environment = {**losing, VARIABLE: "7"}
        screen.run("-m", "stratadesk", "-m", MODEL, cwd=tmp_path, **environment)
        screen.read_until(b"Chat not kept")
        screen.read_until(b"The chat from before is damaged:")
        screen.read_until(b"The chat starts empty; ask again.")
        screen.read_until(b"READY")
        screen.type(CTRL_Q)
        assert screen.wait() == 0
    assert list(state.glob("handover*")) == []


def test_what_a_start_that_was_interrupted_has_left_is_gone_after_the_next(
    losing: dict[str, str], own_home: Path, tmp_path: Path
) -> None:
    state = own_home / "state"
    state.mkdir()
    interrupted = subprocess.Popen([sys.executable, "-c", ""])
    interrupted.wait()
    left, ours = (state / f"handover-{n}.json" for n in (interrupted.pid, os.getpid()))
    left.write_text("{}")
    ours.write_text("{}")
    with terminal(100, 40) as screen:
        screen.run("-m", "stratadesk", "-m", MODEL, cwd=tmp_path, **losing)
        screen.read_until(b"READY")
        screen.type(CTRL_Q)
        assert screen.wait() == 0
        assert b"Chat not kept" not in screen.text
    assert list(state.glob("handover*")) == [ours], "this process lives"


def test_the_same_interpreter_gets_the_same_arguments(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran: list[Any] = []

    def run(path: str, command: list[str], environment: dict[str, str]) -> None:
        ran.append((path, command, environment))

    monkeypatch.setattr(os, "execve", run)
    for given in (["python", "-P", "-m", "stratadesk", "-m", "a b"], ["python", "/bin/stratadesk"]):
        monkeypatch.setattr(sys, "orig_argv", given)
        starting.start_again(Path("handover-12.json"))
        path, command, environment = ran.pop()
        assert path == sys.executable
        assert command == [sys.executable, *given[1:]]
        assert environment == {**os.environ, VARIABLE: "12"}
    assert capfd.readouterr().err == "StrataDesk starts again; the chat is kept.\n" * 2


def test_files_of_native_code_do_not_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    monkeypatch.setattr(os, "execve", lambda *_: None)
    starting.start_again(Path("handover-12.json"))
    assert not os.get_inheritable(writing)
    assert os.get_inheritable(1)
    os.close(reading)
    os.close(writing)


def test_an_interpreter_that_is_gone_is_told_with_the_place_of_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(StrataDeskError) as caught:
        starting.start_again(Path("handover-12.json"))
    assert str(caught.value) == (
        "/nowhere/python cannot be run: No such file or directory. Start StrataDesk yourself; "
        "handover-12.json has what was said."
    )
