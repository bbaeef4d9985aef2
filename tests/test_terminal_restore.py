"""A terminal that swallows what is typed, or shows what a library printed, after StrataDesk.

The program is started as users start it, on a pseudo-terminal, and then ended in every bad way.
"""

import signal
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("pseudo-terminals need POSIX", allow_module_level=True)

import termios

from stratadesk.cli.reset_terminal import RESET
from tests.conftest import DATA_DIR
from tests.pseudo_terminal import (
    CTRL_Q,
    Terminal,
    kitty_flags_left,
    modes_left_on,
    terminal,
)

MODEL = str(DATA_DIR / "models" / "qwen3moe-f16.gguf")
ALTERNATE, MOUSE, PASTE, CURSOR = 1049, 1000, 2004, 25

SCRIPTED = """
import ctypes, logging, os, sys, warnings
from stratadesk.cli import main
from stratadesk.engine import loop
from tests.tui import scripted_engine as script
from tests.tui.scripted_engine import ScriptedEngine

class Engine(ScriptedEngine):
    def send(self, command):
        super().send(command)
        self.happen()

    def happen(self):
        {happening}

loop.Engine = Engine
raise SystemExit(main(["-m", {model!r}]))
"""
NOISE = """
        print("a library prints")
        sys.stderr.write("and warns\\n")
        sys.stderr.flush()
        os.write(1, b"native code writes\\n")
        os.write(2, b"on both outputs\\n")
        ctypes.CDLL(None).puts(b"and through a buffer of its own")
        warnings.warn("a warning of Python")
        logging.getLogger("anyone").error("a line for the log")
"""
SAID = ("a library prints", "and warns", "native code writes", "on both outputs", "its own")


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of a project, and no models of this user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def started(screen: Terminal, happening: str) -> None:
    """Start the chat with an engine to which something happens when it is to load."""
    screen.run("-c", SCRIPTED.format(happening=happening, model=MODEL))


def assert_restored(screen: Terminal) -> None:
    """The terminal is as a shell left it, and nobody's traceback stands in it."""
    assert modes_left_on(screen.written) == set()
    assert kitty_flags_left(screen.written) == 0
    assert screen.modes() == screen.before
    assert b"Traceback" not in screen.text


def assert_in_disorder(screen: Terminal) -> None:
    """The harness would see a terminal that was not restored."""
    assert {ALTERNATE, MOUSE, PASTE, CURSOR} <= modes_left_on(screen.written)
    assert kitty_flags_left(screen.written) == 1
    assert not screen.modes()[3] & termios.ECHO


def test_after_sigterm() -> None:
    with terminal() as screen:
        started(screen, "pass")
        screen.read_until(b"READY")
        assert_in_disorder(screen)
        assert screen.process is not None
        screen.process.send_signal(signal.SIGTERM)
        assert screen.wait() == 143
        assert_restored(screen)


def test_after_an_error_in_the_app(own_home: Path) -> None:
    with terminal() as screen:
        started(screen, "self.say(*script.loaded(name=None))")
        assert screen.wait() == 1
        assert_restored(screen)
        assert b"stratadesk: An unexpected error ended the program" in screen.text
    assert "Traceback" in (own_home / "log" / "stratadesk.log").read_text()


def test_after_the_death_of_the_engines_thread() -> None:
    """The app lives on, says so, and leaves as always."""
    killed = "loop.Engine._attend = lambda *_, **__: sys.exit('gone')"
    code = f"import sys\nfrom stratadesk.engine import loop\n{killed}\n"
    code += f"from stratadesk.cli import main\nraise SystemExit(main(['-m', {MODEL!r}]))"
    with terminal() as screen:
        screen.run("-c", code)
        screen.read_until(b"The engine has stopped")
        screen.type(CTRL_Q)
        assert screen.wait() == 0
        assert_restored(screen)


@pytest.mark.parametrize("happening", ["os.abort()", "os.kill(os.getpid(), 9)"])
def test_reset_terminal_repairs_what_a_killed_program_left(happening: str) -> None:
    with terminal() as screen:
        started(screen, happening)
        assert screen.wait() < 0
        assert_in_disorder(screen)
        screen.run("-m", "stratadesk", "--reset-terminal")
        assert screen.wait() == 0
        assert screen.written.endswith(RESET.encode())
        assert_restored(screen)


def test_reset_terminal_writes_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    from stratadesk.cli import main

    assert main(["--reset-terminal"]) == 0
    assert capfd.readouterr() == (RESET, "")


def test_nothing_but_the_app_writes_to_the_terminal(own_home: Path) -> None:
    with terminal() as screen:
        started(screen, NOISE.strip())
        screen.read_until(b"READY")
        screen.type(CTRL_Q)
        assert screen.wait() == 0
        for words in (*SAID, "a warning of Python", "a line for the log"):
            assert words.encode() not in screen.text
        assert_restored(screen)
    printed = (own_home / "log" / "output.log").read_text()
    for words in SAID:
        assert words in printed
    logged = (own_home / "log" / "stratadesk.log").read_text()
    assert "a warning of Python" in logged
    assert "a line for the log" in logged
