"""The log file, and what a user sees of an error nobody foresaw: one sentence, no traceback."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from stratadesk.paths import folders

if TYPE_CHECKING:
    import logging
    import threading

MAX_FILE_BYTES = 2_000_000
OLD_FILES = 3


def debugging() -> bool:
    """Whether STRATADESK_DEBUG asks for tracebacks on the terminal."""
    return os.environ.get("STRATADESK_DEBUG", "") not in ("", "0")


def start_logging() -> Path:
    """Send all logging and warnings to the log file and return its path.

    A folder that cannot be written turns logging off: it must not end a chat, and nothing but
    the program itself may write to the terminal.
    """
    import logging

    path = folders().log_file
    root = logging.getLogger()
    if not any(handler.get_name() == str(path) for handler in root.handlers):
        root.addHandler(_file_handler(path))
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)
    logging.getLogger("stratadesk").setLevel(logging.DEBUG if debugging() else logging.INFO)
    return path


def _file_handler(path: Path) -> "logging.Handler":
    import logging
    from logging.handlers import RotatingFileHandler

    handler: logging.Handler
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            path, maxBytes=MAX_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8"
        )
    except OSError:
        handler = logging.NullHandler()
    handler.set_name(str(path))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


def record_crash(error: BaseException) -> str:
    """Write the traceback of `error` to the log; return the sentence that a user sees."""
    import logging

    path = start_logging()
    logging.getLogger(__name__).critical("unexpected error", exc_info=error)
    words = f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(":. ")
    return f"An unexpected error ended the program ({words}). The details are in {path}."


def install_crash_hooks() -> None:
    """Turn errors that nothing handles, in any thread, into a sentence and a log entry."""
    import threading

    sys.excepthook = _on_crash
    threading.excepthook = _on_thread_crash


def _on_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        return
    sys.stderr.write(f"stratadesk: {record_crash(error)}\n")
    if debugging():
        sys.__excepthook__(kind, error, trace)


def _on_thread_crash(crash: "threading.ExceptHookArgs") -> None:
    if crash.exc_value is not None:
        record_crash(crash.exc_value)
