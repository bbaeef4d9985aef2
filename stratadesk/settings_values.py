"""Values of settings as files, variables and commands give them, checked against their `Flag`."""

import os
from collections.abc import Mapping, Sequence

from stratadesk.settings import Flag, Value
from stratadesk.settings_schema import Setting

Kept = Value | tuple[str, ...]
"""What a setting can be; None is "not set"."""


def from_file(flag: Flag, raw: object) -> Kept:
    """Check a value of a TOML file; raises ValueError whose message says what is allowed."""
    if flag.repeated:
        return _texts(flag, raw)
    if isinstance(raw, str):
        if flag.kind is not str and raw not in flag.words:
            raise ValueError(flag.allowed())
        return flag.parse(raw)
    whole = type(raw) is int and flag.kind in (int, float)
    if not (whole or type(raw) is flag.kind):
        raise ValueError(flag.allowed())
    return flag.parse(str(raw))


def from_texts(flag: Flag, texts: Sequence[str]) -> Kept:
    """Convert what a command was given: one text, or any number for a repeated flag."""
    if flag.repeated:
        return tuple(str(flag.parse(text)) for text in texts)
    if len(texts) != 1:
        raise ValueError(f"{flag.allowed()}, once")
    return flag.parse(texts[0])


def from_environment(setting: Setting, environment: Mapping[str, str]) -> Kept:
    """Return what the setting's variable says, None when it is unset or empty.

    Folders are separated as in PATH. Raises ValueError as `from_file` does.
    """
    text = environment.get(setting.variable, "")
    if not text.strip():
        return None
    if setting.flag.field == "folders":
        return tuple(filter(None, map(str.strip, text.split(os.pathsep))))
    value = setting.flag.parse(text)
    return (str(value),) if setting.flag.repeated else value


def default_of(flag: Flag) -> Kept:
    """Return the value that holds when nothing says otherwise."""
    return () if flag.repeated else flag.default


def _texts(flag: Flag, raw: object) -> tuple[str, ...]:
    items = raw if isinstance(raw, list) else [raw]
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items):
        raise ValueError(f"{flag.allowed()}, or a list of it")
    return tuple(str(flag.parse(text)) for text in texts)
