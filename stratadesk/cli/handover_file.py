"""The file in which the program hands over to itself: written, read once, and gone.

An environment variable tells the new program which file is for it, so that other windows, and
files that a crash has left, do not meddle.
"""

import json
import os
import time
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratadesk.errors import StrataDeskError
from stratadesk.file_safety import replace_text
from stratadesk.paths import folders

if TYPE_CHECKING:
    from stratadesk.tui.handover import Handover

VARIABLE = "STRATADESK_HANDOVER"
"""Names the number in the file's name."""

FORMAT = 1
FRESH_S = 600.0
"""Seconds within which a program starts again; a file that is older is nobody's any more."""
CLOCKS_S = 60.0
"""How many seconds the clocks of files and of processes may differ."""


class HandoverError(StrataDeskError):
    """A chat that was handed over and does not arrive."""

    title = "Chat not kept"
    usual_remedy = "The chat starts empty; ask again."


def write_handover(handover: "Handover") -> Path:
    """Write the file, which only this user may read, and return its path.

    Raises:
        StrataDeskError: it cannot be written.
    """
    from stratadesk.engine.plain_objects import plain

    path = _path(os.getpid())
    text = json.dumps({"format": FORMAT, "at": time.time(), "handover": plain(handover)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        forget_stale()
        path.touch(mode=0o600)
    except OSError as error:
        raise StrataDeskError(
            f"The chat cannot be kept in {path}: {error.strerror}.", _remedy(path.parent)
        ) from None
    try:
        replace_text(path, text)
    except StrataDeskError:
        with suppress(OSError):
            path.unlink()
        raise
    return path


def naming(path: Path) -> dict[str, str]:
    """Return what the environment of the new program has to say."""
    return {VARIABLE: path.stem.partition("-")[2]}


def take_handover(environment: MutableMapping[str, str] = os.environ) -> "Handover | None":
    """Return what was handed over to this program, None where nothing was; the file is removed.

    Raises:
        HandoverError: it cannot be read, is damaged, or is an old one.
    """
    number = environment.pop(VARIABLE, "")
    if not (number.isascii() and number.isdigit()):
        return None
    path = _path(int(number))
    try:
        written = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise HandoverError(f"The chat from before cannot be read: {why}.") from None
    finally:
        with suppress(OSError):
            path.unlink()
    return _read(written)


def _read(written: str) -> "Handover":
    from stratadesk.engine.plain_objects import made
    from stratadesk.tui.handover import Handover

    try:
        fields: dict[str, Any] = dict(json.loads(written))
        known, fresh = fields["format"] == FORMAT, abs(time.time() - fields["at"]) < FRESH_S
        handover: Handover | None = None
        if known and fresh:
            handover = made(Handover, fields["handover"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())
        raise HandoverError(f"The chat from before is damaged: {words}.") from None
    if handover is None:
        raise HandoverError("The chat from before is too old, or of another version.")
    return handover


def forget_stale() -> None:
    """Remove what programs have left that could not start, or not write to the end.

    Chats are private. What a living program has written stays: it is about to read it. So call this
    when what is for this one has been taken. Never raises.
    """
    folder = folders().state
    with suppress(OSError):
        for path in (*folder.glob("handover-*.json"), *folder.glob(".handover-*.json.*")):
            with suppress(OSError):
                if _is_stale(path):
                    path.unlink()


def _is_stale(path: Path) -> bool:
    """Whether nobody will read it: it is too old, or its writer, who would be the reader, is gone.

    Raises:
        OSError: the file is gone already.
    """
    written = path.stat().st_mtime
    if time.time() - written > FRESH_S:
        return True
    number = path.name.partition("-")[2].partition(".")[0]
    if not (number.isascii() and number.isdigit()):
        return False
    import psutil

    try:
        process = psutil.Process(int(number))
        # A process that began later has only got the number of one that is gone.
        later = process.create_time() > written + CLOCKS_S
        return later or process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, OverflowError):
        return True
    except psutil.Error:
        return False


def _remedy(folder: Path) -> str:
    """Say what to do where nothing can be written into a folder."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place) and not place.is_dir():
            return f"{place} is no folder: move it away, and try again."
    return "Give this user the right to write there, and try again."


def _path(number: int) -> Path:
    return folders().state / f"handover-{number}.json"
