"""Engine events as JSON objects and back: `type` names the class, the rest are its fields."""

import typing
from functools import cache
from typing import Any

from stratadesk.engine import events
from stratadesk.engine.events import Event
from stratadesk.engine.plain_objects import made, plain
from stratadesk.errors import UsageError


def encode(event: Event) -> dict[str, Any]:
    """Return `event` as an object of JSON's types."""
    return {"type": type(event).__name__, **plain(event)}


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
        event: Event = made(kinds[name], {k: v for k, v in fields.items() if k != "type"})
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is not as this version has it: {error}.", "Record it again."
        ) from (error)
    return event


@cache
def _kinds() -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in typing.get_args(events.Event)}
