"""Engine events as JSON objects and back, by their fields and types.

Of an event, `type` names the class; nested dataclasses, enumerations, tuples and None follow
from the annotations.
"""

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

from stratadesk.engine import events
from stratadesk.engine.events import Event
from stratadesk.errors import UsageError


def encode(event: Event) -> dict[str, Any]:
    """Return `event` as an object of JSON's types."""
    return {"type": type(event).__name__, **_plain(event)}


def decode(fields: dict[str, Any]) -> Event:
    """Return the event that `encode` was given.

    Raises:
        UsageError: it is of a type, or has fields, that this version does not have.
    """
    kinds = _kinds()
    name = fields.get("type")
    if name not in kinds:
        raise UsageError(f"There is no event {name!r} in this version.", "Record it again.")
    try:
        made: Event = _made(kinds[name], {k: v for k, v in fields.items() if k != "type"})
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is not as this version has it: {error}.", "Record it again."
        ) from (error)
    return made


@cache
def _kinds() -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in typing.get_args(events.Event)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    # `VramPhase` names a class that it imports for type checkers alone: it needs NumPy.
    from stratadesk.engine.vram.resizing import Resize

    return typing.get_type_hints(kind, localns={"Resize": Resize})


def _made(wanted: Any, value: Any) -> Any:
    """Build a value of the annotated type `wanted` from plain JSON."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (wanted,) = (option for option in arguments if option is not type(None))
        return _made(wanted, value)
    if origin is tuple:
        return tuple(_made(arguments[0], entry) for entry in value)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        hints = _hints(wanted)
        return wanted(**{name: _made(hints[name], entry) for name, entry in value.items()})
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(value)
    return float(value) if wanted is float else value
