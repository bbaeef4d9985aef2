"""What the user wrote, made into texts, token ids and settings; wrong input is a `UsageError`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratadesk.cli.card_inputs import card_for, unfollowed
from stratadesk.cli.kept_settings import kept_fields
from stratadesk.errors import UsageError
from stratadesk.settings import ENGINE_FLAGS, MOST_TOKENS, SAMPLING_FLAGS, Flag, quoted
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.commands import Device, EngineSettings, SamplingSettings

GIVE_IDS = "Give a file that holds a list like [1, 2, 3]."
LARGEST_IDS = 64 * MIB
"""Bytes of a list of token ids; one for a context of millions has fewer."""

TYPING = "Reading the text from the terminal; end it with Ctrl+D (on Windows Ctrl+Z and Enter)."


def read_text(argument: str) -> str:
    """Return `argument`, or for "-" the whole of standard input, byte for byte."""
    if argument != "-":
        return _whole_characters(argument)
    if sys.stdin.isatty():
        print(TYPING, file=sys.stderr, flush=True)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UsageError(
            f"Standard input is not UTF-8: byte {error.start} is 0x{byte:02X}.",
            "Convert the text to UTF-8 first.",
        ) from None


def _whole_characters(argument: str) -> str:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The text is not UTF-8 at character {error.start}.", "Convert it to UTF-8 first."
        ) from None
    return argument


def token_ids(words: str) -> tuple[int, ...]:
    """Read token ids separated by blanks or commas."""
    ids = []
    for word in words.replace(",", " ").split():
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(MOST_TOKENS))):
            raise UsageError(f"{quoted(word)} is not a token id.", 'Write ids like "1 2 3".')
        ids.append(int(word))
    return _some(ids, "--tokens")


def token_ids_from(path: Path) -> tuple[int, ...]:
    """Read a file that holds a JSON list of token ids."""
    import json

    try:
        ids = json.loads(_bounded(path).decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", GIVE_IDS) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}.", GIVE_IDS) from None
    except (ValueError, RecursionError) as error:
        place = f" from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path} is not JSON{place}.", GIVE_IDS) from None
    if not isinstance(ids, list) or not all(map(_may_be_id, ids)):
        raise UsageError(f"{path} is not a JSON list of token ids.", GIVE_IDS)
    return _some(ids, str(path))


def _may_be_id(token: object) -> bool:
    return type(token) is int and 0 <= token <= MOST_TOKENS


def _bounded(path: Path) -> bytes:
    """The bytes of a file that may be a pipe, or a device without an end."""
    with path.open("rb") as file:
        read = file.read(LARGEST_IDS + 1)
    if len(read) > LARGEST_IDS:
        raise UsageError(f"{path} has more than {LARGEST_IDS // MIB} MiB.", GIVE_IDS)
    return read


def _some(ids: list[int], source: str) -> tuple[int, ...]:
    if not ids:
        raise UsageError(f"{source} names no token.", "Give at least one id.")
    return tuple(ids)


def engine_settings(arguments: argparse.Namespace) -> "EngineSettings":
    """Build the settings for loading a model from the flags given."""
    from stratadesk.engine.commands import EngineSettings, KvFormat

    given = _given(arguments, ENGINE_FLAGS)
    given["device"] = device(arguments)
    given["mtp"] = drafts(arguments)
    given["plan"], given["machine"] = card_for(arguments, given["device"])
    if isinstance(getattr(arguments, "prefill", None), int):
        given["chunk"] = arguments.prefill
    if "kv_format" in given:
        given["kv_format"] = KvFormat(given["kv_format"])
    return EngineSettings(**given)


def sampling_settings(arguments: argparse.Namespace) -> "SamplingSettings":
    """Build the settings for sampling from the flags given."""
    from stratadesk.engine.commands import SamplingSettings

    given = _given(arguments, SAMPLING_FLAGS)
    if "stop" in given:
        given["stop"] = tuple(_whole_characters(text) for text in given["stop"])
    return SamplingSettings(**given)


def device(arguments: argparse.Namespace) -> "Device":
    """Return the device asked for, or the one chosen where none is.

    A flag that a real card cannot follow goes before a device that was only kept.
    """
    from stratadesk.engine.backends import choose_device
    from stratadesk.engine.commands import Device

    asked = Device(getattr(arguments, "device", Device.AUTO))
    if "device" in kept_fields(arguments) and unfollowed(arguments) is not None:
        asked = Device.AUTO
    return choose_device(asked)


def drafts(arguments: argparse.Namespace) -> bool:
    """Whether the block that drafts tokens is to be loaded."""
    return bool(getattr(arguments, "mtp", False))


def chosen(arguments: argparse.Namespace, flags: tuple[Flag, ...]) -> dict[str, Any]:
    """Return the values of `flags` by field, with their defaults where they were not given."""
    return {flag.field: flag.default for flag in flags} | _given(arguments, flags)


def _given(arguments: argparse.Namespace, flags: tuple[Flag, ...]) -> dict[str, Any]:
    written = vars(arguments)
    return {flag.field: written[flag.field] for flag in flags if flag.field in written}
