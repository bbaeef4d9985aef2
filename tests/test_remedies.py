"""Guards against errors that leave a user alone: a sentence about what failed and no way on."""

import ast
import builtins
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import stratadesk
from stratadesk import errors
from stratadesk.errors import GgufError, StrataDeskError, UsageError

PACKAGE = Path(stratadesk.__file__).parent

NEEDS_NONE = {
    "engine/template_sandbox.py TemplateError": "a template's own words, told with a remedy by "
    "engine/chat_template.py",
}
"""Places that need no remedy, and why; each must still be there."""


def error_classes() -> Iterator[type[StrataDeskError]]:
    """The family, with the members that other modules add to it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                name = ".".join(("stratadesk", *path.relative_to(PACKAGE).with_suffix("").parts))
                found = getattr(importlib.import_module(name), node.name)
                if issubclass(found, StrataDeskError):
                    yield found


CLASSES = {found.__name__: found for found in error_classes()}


def without_remedy(source: str) -> Iterator[tuple[str, int]]:
    """Names and lines of errors that are made in `source` with nothing to say what to do."""
    for node in ast.walk(ast.parse(source)):
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if name in CLASSES and not CLASSES[name].usual_remedy:
            assert isinstance(node, ast.Call)
            given = [*node.args[1:], *(word.value for word in node.keywords)]
            if not any(may_say_something(value) for value in given):
                yield name, node.lineno


def may_say_something(value: ast.expr) -> bool:
    """Whether an argument is no empty text, on any branch that it chooses from."""
    if isinstance(value, ast.IfExp):
        return may_say_something(value.body) and may_say_something(value.orelse)
    return not (isinstance(value, ast.Constant) and not value.value)


def test_every_error_says_what_to_do() -> None:
    bare, excused = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for name, line in without_remedy(path.read_text("utf-8")):
            if f"{place} {name}" in NEEDS_NONE:
                excused.add(f"{place} {name}")
            else:
                bare.append(f"{place}:{line} {name}")
    assert bare == []
    assert excused == NEEDS_NONE.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise UsageError('No.')", True),
        ("raise UsageError('No.', '')", True),
        ("raise UsageError('No.', 'Do that.' if x else '')", True),
        ("raise UsageError('No.', 'Do that.')", False),
        ("raise UsageError('No.', remedy=that)", False),
        ("return StrataDeskError(said)", True),
        ("raise GgufError('It is damaged.')", False),
        ("raise ValueError('No.')", False),
    ],
)
def test_what_counts_as_a_remedy(source: str, found: bool) -> None:
    assert bool(list(without_remedy(source))) is found


def test_the_family_is_found() -> None:
    assert {"UsageError", "GgufError", "DeviceError", "HeadLostError"} <= CLASSES.keys()
    assert len(CLASSES) >= len([name for name in vars(errors) if name.endswith("Error")])
    assert not CLASSES.keys() & vars(builtins).keys()


def test_an_error_has_its_own_remedy_or_that_of_its_kind() -> None:
    assert GgufError("It ends early.").remedy == GgufError.usual_remedy != ""
    assert GgufError("It ends early.", "Wait.").remedy == "Wait."
    assert UsageError("No.", "").remedy == ""
    assert str(UsageError("No.", "Do that.")) == "No. Do that."
