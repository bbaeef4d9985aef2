"""Writing the line mode's page: an answer in pieces, and lines that never stand inside one."""

import sys
import threading
from typing import TextIO

from stratadesk.tui.sanitise import safe_line, safe_text

YOU, MODEL, THINKING = "You: ", "Model: ", "Thinking: "


class PlainPage:
    """Writes to one stream from two threads: the one that asks and the one that listens.

    What a terminal would obey is made visible in whatever comes from a model.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._speaker = ""
        self._at_start = True
        self._asking = ""
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Write a line of its own; a question that waits is written again below it."""
        with self._lock:
            self._end_line()
            self._write(f"{safe_line(text)}\n")
            if self._asking:
                self._write(self._asking + _typed_so_far())

    def say(self, speaker: str, text: str) -> None:
        """Go on with what `speaker` says, on a line of its own if another one spoke before."""
        if not text:
            return
        with self._lock:
            if speaker != self._speaker:
                self._end_line()
                self._write(speaker)
                self._speaker = speaker
            self._write(safe_text(text))

    def ask(self, prompt: str) -> str:
        """Ask for a line and return it without its end; raises EOFError when there is no more."""
        with self._lock:
            self._end_line()
            self._asking = prompt
        try:
            return self._answer_to(prompt)
        except (EOFError, KeyboardInterrupt):
            self._echo("")
            raise
        finally:
            with self._lock:
                self._asking = ""
                self._at_start = True

    def _answer_to(self, prompt: str) -> str:
        """Read a line; one that no terminal echoes is written to the page."""
        if sys.stdin.isatty():
            return input(prompt)
        with self._lock:
            self._write(prompt)
        text = sys.stdin.readline()
        if not text:
            raise EOFError
        self._echo(text)
        return text.rstrip("\r\n")

    def _echo(self, text: str) -> None:
        with self._lock:
            self._write(f"{safe_line(text)}\n")

    def _end_line(self) -> None:
        self._speaker = ""
        if not self._at_start or self._asking:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
        self._at_start = text.endswith("\n")


def _typed_so_far() -> str:
    """What is in the line being typed, where the terminal's line editor can tell."""
    readline = sys.modules.get("readline")
    typed: str = readline.get_line_buffer() if readline is not None else ""
    return typed
