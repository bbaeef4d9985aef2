"""Keeps the terminal to the chat: what libraries and native code print goes to a file.

Compiled code writes to the file descriptors, past any Python stream. So the descriptors
themselves are pointed at the file, and Textual alone gets a duplicate of the terminal, as
`sys.__stdout__` and `sys.__stderr__`, the streams its drivers draw on. What Python code prints
under the app, Textual would drop: `Printed` hands it on.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.message import Message

STDOUT, STDERR = 1, 2
STREAMS = ("__stdout__", "__stderr__")


@contextmanager
def output_into(path: Path) -> Iterator[None]:
    """Send all output but the app's own into the file `path`, which is emptied first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = {name: getattr(sys, name) for name in STREAMS}
    with (
        path.open("wb") as file,
        _duplicates() as saved,
        open(saved[0], "w", encoding="utf-8", errors="replace", closefd=False) as terminal,
    ):
        _point_outputs([file.fileno()] * 2)
        vars(sys).update(dict.fromkeys(STREAMS, terminal))
        try:
            yield
        finally:
            _flush_native_code()
            vars(sys).update(streams)
            _point_outputs(saved)


class Printed:
    """Takes an app's `Print` messages and writes their text to standard output."""

    def post_message(self, message: "Message") -> bool:
        """Write the text of a message at once, on the thread that printed it."""
        text = getattr(message, "text", "")
        os.write(STDOUT, str(text).encode("utf-8", errors="replace"))
        return True


def _flush_native_code() -> None:
    """Have the C library write what it buffers for standard output: later it has the terminal."""
    import ctypes

    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    library.fflush(None)


@contextmanager
def _duplicates() -> Iterator[list[int]]:
    descriptors = [os.dup(STDOUT), os.dup(STDERR)]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _point_outputs(targets: list[int]) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for target, descriptor in zip(targets, (STDOUT, STDERR), strict=True):
        os.dup2(target, descriptor)
