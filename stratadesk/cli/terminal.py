"""Writing to the terminal: UTF-8 everywhere, and nothing but text into a pipe."""

import errno
import io
import os
import shutil
import sys
from contextlib import suppress
from typing import TextIO

AGAIN = ("Load the model again", "Start StrataDesk again")
"""What remedies tell those to do who are in the chat."""

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


def use_utf8() -> None:
    """Write UTF-8 to standard output and error, whatever code page the console has."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def open_closed_streams() -> list[str]:
    """Put the null device where the shell closed a standard stream (`>&-`); return their names.

    Otherwise the next file opened would take its number, and be written to as the stream.
    """
    modes = {"stdin": "r", "stdout": "w", "stderr": "w"}
    closed = [name for name in modes if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, open(os.devnull, modes[name], encoding="utf-8"))  # noqa: SIM115 - for the whole run
    return closed


def refuses_output(error: OSError) -> bool:
    """Whether an error that no command has caught is standard output's: full, or not for writing.

    Errors about files that are opened by name carry the name; commands catch those of writing
    their own files.
    """
    full = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
    return error.filename is None and error.errno in full


def abandon_stdout() -> None:
    """Let what is still buffered go nowhere after the reader of a pipe has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def has_working_folder() -> bool:
    """Whether the folder that the program was started in is still there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def print_error(sentence: str, remedy: str = "") -> None:
    """Print an error as every command does.

    Whoever reads it is at the shell: there, running the command again is what loads a model again
    and starts the program again. Where standard error is closed or full, the exit code alone has
    to tell.
    """
    for words in AGAIN:
        remedy = remedy.replace(words, "Run the command again")
    with suppress(OSError):
        print(f"stratadesk: {sentence} {remedy}".rstrip(), file=sys.stderr)


def takes_styles(stream: TextIO) -> bool:
    """Whether dimmed text is wanted and understood by `stream`."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    understood = True
    if sys.platform == "win32":
        understood = _windows_console_takes_escapes()
    return understood


if sys.platform == "win32":

    def _windows_console_takes_escapes() -> bool:
        import ctypes

        std_output_handle, processed_output, virtual_terminal = -11, 1, 4
        kernel32 = ctypes.windll.kernel32
        console = kernel32.GetStdHandle(std_output_handle)
        return bool(kernel32.SetConsoleMode(console, processed_output | virtual_terminal))


def dim(text: str, stream: TextIO) -> str:
    """Dim `text` where `stream` takes styles."""
    return f"{DIM}{text}{PLAIN}" if text and takes_styles(stream) else text


class ProgressLine:
    """One line on standard error that is overwritten in place; silent into a pipe."""

    def __init__(self) -> None:
        self._visible = sys.stderr.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        """Put `text`, cut to the terminal's width, in place of what the line said."""
        if not self._visible:
            return
        columns = shutil.get_terminal_size().columns - 1
        text = text[:columns]
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def clear(self) -> None:
        """Empty the line, so that what follows starts at its beginning."""
        if self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
