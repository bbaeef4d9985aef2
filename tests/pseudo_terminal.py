"""A program in a pseudo-terminal: keys go in, what it draws is read byte by byte.

Only where there are pseudo-terminals: not on Windows.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PATIENCE_S = 60.0
CTRL_Q, CTRL_C = b"\x11", b"\x03"

_SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]")
_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_KITTY = re.compile(rb"\x1b\[([<>])[0-9;]*u")
AUTOWRAP, CURSOR = 7, 25


class Terminal:
    """A pseudo-terminal; `run` starts a program in it, one after the other."""

    def __init__(self, columns: int, rows: int) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = self.modes()
        self.written = b""
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str, cwd: Path = ROOT, **environment: str) -> None:
        """Start Python with `arguments`."""
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=_inherited()
            | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "STRATADESK_MODELS": ""}
            | environment,
            start_new_session=True,
        )

    @property
    def text(self) -> bytes:
        """What has been written, without escape sequences."""
        return _SEQUENCE.sub(b"", self.written)

    def read_until(self, text: bytes) -> None:
        """Read until `text` has been written, escape sequences left out."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.written[-2000:]
            self._read()

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def wait(self) -> int:
        """Read until the program has ended and return its exit code."""
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.written[-2000:]
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def modes(self) -> list[Any]:
        """How the terminal treats what is typed: echo, lines, signals."""
        return termios.tcgetattr(self.slave)

    def close(self) -> None:
        """End what still runs."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 0.1)
        if ready:
            self.written += os.read(self.master, 65536)
        return bool(ready)


def _inherited() -> dict[str, str]:
    """The environment, without a size that would overrule the terminal's own."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


@contextmanager
def terminal(columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """A terminal that is closed at the end, with whatever runs in it."""
    opened = Terminal(columns, rows)
    try:
        yield opened
    finally:
        opened.close()


def modes_left_on(written: bytes) -> set[int]:
    """Private modes that are not as a shell expects them after all of `written`."""
    state = {AUTOWRAP: True, CURSOR: True}
    for numbers, switch in _MODE.findall(written):
        state |= dict.fromkeys(map(int, numbers.split(b";")), switch == b"h")
    usual: Sequence[int] = (AUTOWRAP, CURSOR)
    return {mode for mode, on in state.items() if on is not (mode in usual)}


def kitty_flags_left(written: bytes) -> int:
    """How often keyboard flags were pushed and not popped again."""
    depth = 0
    for move in _KITTY.findall(written):
        depth = depth + 1 if move == b">" else max(depth - 1, 0)
    return depth
