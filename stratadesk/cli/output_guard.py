"""Keeps the terminal to the chat: what libraries and native code print goes to a file.

Compiled code writes to the file descriptors, past any Python stream. So the descriptors
themselves are pointed at the file, and Textual alone gets a duplicate of the terminal, as
`sys.__stdout__` and `sys.__stderr__`, the streams its drivers draw on.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
            vars(sys).update(streams)
            _point_outputs(saved)


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
