"""A terminal left in mouse mode, or an engine left running, outlives the program.

The app runs in a pseudo-terminal with a scripted engine; what it wrote is read byte by byte.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tui.looking import wait_for_text
from tests.tui.scripted_engine import ScriptedEngine, make_app

if sys.platform == "win32":
    pytest.skip("pseudo-terminals need POSIX", allow_module_level=True)

import fcntl
import pty
import struct
import termios

ROOT = Path(__file__).parents[2]
RESTORED = {
    "alternate screen": b"\x1b[?1049l",
    "mouse": b"\x1b[?1000l",
    "mouse movement": b"\x1b[?1003l",
    "bracketed paste": b"\x1b[?2004l",
    "cursor": b"\x1b[?25h",
}
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")
PATIENCE_S = 30.0
CTRL_Q, CTRL_C = b"\x11", b"\x03"


class Terminal:
    """A pseudo-terminal of 80x24 with the demo in it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, "tools/demo_tui.py", "--slow", "0.1"],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )

    def read_until(self, text: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in SEQUENCE.sub(b"", self.written):
            assert time.monotonic() < deadline, self.written[-2000:]
            self._read()

    def wait(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.written[-2000:]
            self._read()
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        ready, _, _ = select.select([self.master], [], [], 0.1)
        if ready:
            self.written += os.read(self.master, 65536)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.parametrize("way", ["ctrl+q", "ctrl+c twice", "SIGTERM"])
def test_the_terminal_is_as_it_was(way: str) -> None:
    terminal = Terminal()
    try:
        terminal.read_until(b"READY")
        if way == "SIGTERM":
            terminal.process.send_signal(signal.SIGTERM)
        elif way == "ctrl+q":
            os.write(terminal.master, CTRL_Q)
        else:
            os.write(terminal.master, CTRL_C)
            terminal.read_until(b"again to quit")
            os.write(terminal.master, CTRL_C)
        code = terminal.wait()
        assert code == (130 if way == "SIGTERM" else 0)
        for what, reset in RESTORED.items():
            assert reset in terminal.written, what
        assert b"Traceback" not in terminal.written
        assert termios.tcgetattr(terminal.slave) == terminal.before
    finally:
        terminal.close()


async def test_a_failure_of_the_app_prints_no_traceback_and_stops_the_engine(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)

    async def run_and_fail() -> None:
        async with app.run_test() as pilot:
            await wait_for_text(pilot, "READY")
            app.call_later(lambda: 1 // 0)
            await pilot.pause(0.2)

    with pytest.raises(ZeroDivisionError):
        await run_and_fail()
    assert isinstance(app.failed_with, ZeroDivisionError)
    assert engine.stops == 1
    assert "Traceback" not in "".join(capfd.readouterr())
