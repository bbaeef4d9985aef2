"""Changing one value in the text of a settings file, with nothing else touched."""

import re
import tomllib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Comment, Null, Table, Whitespace

from stratadesk.errors import StrataDeskError
from stratadesk.settings_schema import Setting
from stratadesk.settings_values import Kept

HEADER = "StrataDesk's settings; `stratadesk config show` lists all of them and who decides each."

Fields = MutableMapping[str, Any]


def changed_text(path: Path, text: str, setting: Setting, value: Kept) -> str:
    """Return `text` with the setting put to `value`, or taken out for None.

    A setting that is new in a table gets what it means as a comment above it. The result is
    read again and compared: every other value must be what it was. `path` is for the error.

    Raises:
        StrataDeskError: the change cannot be made without touching anything else.
    """
    for explained in (True, False):
        try:
            wanted = _wanted(text, setting, value)
            result = _changed(text, setting, value, explained=explained)
            if tomllib.loads(result) == wanted:
                return result
        except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError):
            continue
    raise StrataDeskError(
        f"{setting.key} cannot be changed in {path} without touching other lines.",
        "Change it there by hand.",
    )


def _changed(text: str, setting: Setting, value: Kept, *, explained: bool) -> str:
    document = tomlkit.parse(text) if text.strip() else _new_document()
    if value is None and setting.section not in document:
        return text
    fields, name = _section(document, setting.section), setting.flag.field
    if value is None:
        _remove(fields, setting)
    elif name not in fields and explained and isinstance(fields, Table):
        _append_explained(fields, setting, _plain(value))
    else:
        fields[name] = _plain(value)
    return _same_line_ends(tomlkit.dumps(document), text)


def _wanted(text: str, setting: Setting, value: Kept) -> dict[str, Any]:
    data = tomllib.loads(text)
    if value is None:
        data.get(setting.section, {}).pop(setting.flag.field, None)
    else:
        data.setdefault(setting.section, {})[setting.flag.field] = _plain(value)
    return data


def _plain(value: Kept) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _new_document() -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    document.add(tomlkit.comment(HEADER))
    return document


def _section(document: tomlkit.TOMLDocument, name: str) -> Fields:
    if name not in document:
        if document.body:
            document.add(tomlkit.nl())
        document.add(name, tomlkit.table())
    fields = document[name]
    if not isinstance(fields, MutableMapping):
        raise TypeError(f"{name} is not a table")
    return fields


def _append_explained(table: Table, setting: Setting, value: Any) -> None:
    """Append comment and value before the blank lines that part the table from the next."""
    body, blank = table.value.body, []
    while body and isinstance(body[-1][1], Whitespace):
        blank.append(body.pop())
    table.add(tomlkit.comment(setting.flag.help))
    table.add(setting.flag.field, value)
    body.extend(reversed(blank))


def _remove(fields: Fields, setting: Setting) -> None:
    """Remove the value, and its comment if that is the one from here."""
    name = setting.flag.field
    if name not in fields:
        return
    if isinstance(fields, Table):
        body = fields.value.body
        place = next(at for at, (key, _) in enumerate(body) if key is not None and key.key == name)
        above = body[place - 1][1] if place else None
        if isinstance(above, Comment) and above.as_string().strip() == f"# {setting.flag.help}":
            body[place - 1] = (None, Null())
    del fields[name]


def _same_line_ends(result: str, text: str) -> str:
    of_windows = text.count("\r\n") == text.count("\n") > 0
    return re.sub("(?<!\r)\n", "\r\n", result) if of_windows else result
