"""Frozen dataclasses as values of JSON's types and back, by their fields and annotations.

Nested dataclasses, enumerations, tuples and None follow from the annotations.
"""

import dataclasses
import types
import typing
from enum import Enum
from functools import cache
from typing import Any


def plain(value: Any) -> Any:
    """Return `value` as one of JSON's types."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


def made(wanted: Any, value: Any) -> Any:
    """Return the value of the annotated type `wanted` that `plain` was given.

    Raises:
        KeyError, TypeError, ValueError: it is not of that type as this version has it.
    """
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        (wanted,) = (option for option in arguments if option is not type(None))
        return made(wanted, value)
    if origin is tuple:
        return tuple(made(arguments[0], entry) for entry in _checked(list, value))
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        hints = _hints(wanted)
        fields = _checked(dict, value)
        return wanted(**{name: made(hints[name], entry) for name, entry in fields.items()})
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(value)
    return float(value) if wanted is float else _checked(wanted, value)


def _checked(wanted: type[Any], value: Any) -> Any:
    if not isinstance(value, wanted):
        raise TypeError(f"{value!r:.40} is no {wanted.__name__}")
    return value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    # These are imported for type checkers alone where they are named: some need NumPy.
    from stratadesk.engine.vram.machine_facts import MachineFacts
    from stratadesk.engine.vram.plan_settings import PlanSettings
    from stratadesk.engine.vram.resizing import Resize

    later = {"MachineFacts": MachineFacts, "PlanSettings": PlanSettings, "Resize": Resize}
    return typing.get_type_hints(kind, localns=later)
