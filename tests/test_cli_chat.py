"""Guards against a chat that does not start from the command line, or leaves the terminal broken.

The program runs on a real pseudo-terminal; what it writes there is read byte by byte.
"""

import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminal in the standard library", allow_module_level=True)

import fcntl
import pty
import termios

from stratadesk.exit_codes import ExitCode
from tests.gguf_builder import small_model

CTRL_Q, ESCAPE, F2 = b"\x11", b"\x1b", b"\x1bOQ"
ALTERNATE_SCREEN, NORMAL_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
MOUSE_OFF, CURSOR_ON = b"\x1b[?1000l", b"\x1b[?25h"
PATIENCE_S = 60.0


class Session:
    """A running program and the terminal it draws on."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.terminal = terminal
        self.written = b""

    def read_until(self, wanted: bytes) -> None:
        """Read what the program draws until `wanted` is among it."""
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.written:
            assert time.monotonic() < deadline, f"{wanted!r} not in {self.written!r}"
            self.read(0.2)

    def read(self, wait_s: float) -> bool:
        """Read what is there within `wait_s` seconds; False at the end."""
        if not select.select([self.terminal], [], [], wait_s)[0]:
            return True
        try:
            self.written += os.read(self.terminal, 65536)
        except OSError:
            return False
        return True

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.terminal, keys)

    def leave(self) -> int:
        """Read to the end and return the exit code."""
        while self.process.poll() is None or select.select([self.terminal], [], [], 0)[0]:
            if not self.read(0.2):
                break
        return self.process.wait(PATIENCE_S)


@contextmanager
def chat(home: Path, *arguments: str, **environment: str) -> Iterator[Session]:
    """Run the chat on a terminal of 80 columns and 24 rows."""
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "stratadesk", *arguments],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        cwd=home,
        env={
            **os.environ,
            "HOME": str(home),
            "TERM": "xterm-256color",
            "STRATADESK_MODELS": "",
            **environment,
        },
        start_new_session=True,
    )
    os.close(its_end)
    try:
        yield Session(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_the_chat_starts_and_gives_the_terminal_back(own_home: Path) -> None:
    own_home.mkdir(exist_ok=True)
    with chat(own_home) as session:
        session.read_until(ALTERNATE_SCREEN)
        session.read_until(b"LM Studio")
        session.type(CTRL_Q)
        assert session.leave() == 0
    after = session.written.rpartition(ALTERNATE_SCREEN)[2]
    for sequence in (NORMAL_SCREEN, MOUSE_OFF, CURSOR_ON):
        assert sequence in after
    assert (own_home / "log" / "output.log").read_bytes() == b""


@pytest.mark.usefixtures("tiny_guide")
def test_without_a_model_the_guide_starts_on_a_simulated_card_and_others_are_one_key_away(
    own_home: Path,
) -> None:
    own_home.mkdir(exist_ok=True)
    with chat(own_home) as session:
        session.read_until(b"what does head out mean?")
        session.read_until(b"simulated card")
        session.type(F2)
        session.read_until(b"No other model was found")
        session.written = b""
        session.type(ESCAPE)
        session.read_until(b"what does head out mean?")
        session.type(CTRL_Q)
        assert session.leave() == 0


def test_a_chat_whose_model_does_not_load_ends_with_code_and_sentence_of_the_failure(
    own_home: Path,
) -> None:
    own_home.mkdir(exist_ok=True)
    with chat(own_home, STRATADESK_MODEL="gone.gguf") as session:
        session.read_until(b"There is no file 'gone.gguf'.")
        session.type(CTRL_Q)
        assert session.leave() == ExitCode.MODEL_UNUSABLE
    after = session.written.rpartition(NORMAL_SCREEN)[2]
    assert after.count(b"stratadesk: There is no file 'gone.gguf'. Check the path.\r\n") == 1


@pytest.mark.usefixtures("tiny_guide")
def test_a_chat_that_has_loaded_a_model_leaves_without_a_word(own_home: Path) -> None:
    own_home.mkdir(exist_ok=True)
    with chat(own_home) as session:
        session.read_until(b"what does head out mean?")
        session.type(CTRL_Q)
        assert session.leave() == 0
    assert b"stratadesk: " not in session.written.rpartition(NORMAL_SCREEN)[2]


def test_kernels_that_cannot_be_kept_are_told_in_the_chat(own_home: Path) -> None:
    own_home.mkdir(exist_ok=True)
    (own_home / "file").touch()
    nowhere = str(own_home / "file" / "kernels")
    with chat(own_home, NUMBA_CACHE_DIR=nowhere, STRATADESK_MODEL="gone.gguf") as session:
        session.read_until(b"Kernels are not kept")
        session.read_until(b"There is no file 'gone.gguf'.")
        session.type(CTRL_Q)
        session.leave()


@pytest.mark.usefixtures("tiny_guide")
def test_a_chat_that_is_told_to_end_gives_the_terminal_back_and_says_so(own_home: Path) -> None:
    own_home.mkdir(exist_ok=True)
    with chat(own_home) as session:
        session.read_until(b"what does head out mean?")
        session.process.send_signal(signal.SIGTERM)
        assert session.leave() == 128 + signal.SIGTERM
    after = session.written.rpartition(ALTERNATE_SCREEN)[2]
    for sequence in (NORMAL_SCREEN, MOUSE_OFF, CURSOR_ON):
        assert sequence in after


def test_a_wrong_flag_is_told_before_any_screen_is_drawn(own_home: Path) -> None:
    with chat(own_home, "--top-p", "7") as session:
        assert session.leave() == 2
    assert ALTERNATE_SCREEN not in session.written
    assert b"stratadesk: Argument --top-p" in session.written


def test_a_model_that_cannot_run_is_told_before_any_screen_is_drawn(own_home: Path) -> None:
    own_home.mkdir(exist_ok=True)
    small_model("llama").write(own_home / "llama.gguf")
    (own_home / "bad.gguf").write_bytes(b"hello")
    for name, said in (("llama", b"'llama' is not supported"), ("bad", b"is not a GGUF file")):
        for words in (("-m", f"{name}.gguf"), (f"{name}.gguf",)):
            with chat(own_home, *words) as session:
                assert session.leave() == ExitCode.MODEL_UNUSABLE
            assert ALTERNATE_SCREEN not in session.written
            assert said in session.written
