"""TOML as settings files use it: tables one level deep, and on which line each key stands."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from stratadesk.settings_schema import SECTIONS

_PLACE = re.compile(r" \((?:at (?:line (?P<line>\d+), column \d+|end of document))\)$")


class NotTomlError(Exception):
    """A text that is not TOML; `line` is where, counted from 1, None when that is not known."""

    def __init__(self, why: str, line: int | None) -> None:
        super().__init__(why)
        self.line = line


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text.

    Raises:
        NotTomlError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error)
        place = _PLACE.search(why)
        line = place and place["line"]
        raise NotTomlError(_PLACE.sub("", why).rstrip("."), int(line) if line else None) from None
    except RecursionError:
        raise NotTomlError("it is nested too deeply", None) from None


def entries_of(data: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Go through keys as `section.field` with their values; an empty known section has none."""
    known = {section.name for section in SECTIONS}
    for name, content in data.items():
        if isinstance(content, dict) and (content or name in known):
            yield from ((f"{name}.{field}", value) for field, value in content.items())
        else:
            yield name, content


def key_lines(text: str) -> dict[str, int]:
    """Return the line, counted from 1, on which each key of a sound TOML text begins.

    A statement is the shortest run of lines that is TOML by itself.
    """
    lines: dict[str, int] = {}
    header = statement = ""
    begins = 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        statement += line
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            header, statement = statement, ""
        for key, _ in entries_of(tomllib.loads(header + statement)):
            lines.setdefault(key, begins)
        statement, begins = "", number + 1
    return lines
