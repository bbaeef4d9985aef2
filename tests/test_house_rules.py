"""Guards against a tree that stops being a pleasure to read.

It fails in the tail first: one file or function that grows and grows, a public name that
nobody explained, an `except Exception` that hides a bug.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median, quantiles

import pytest

import stratadesk

PACKAGE = Path(stratadesk.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
THREAD_BOUNDARIES = {"engine/loop.py", "tui/bridge.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions() -> Iterator[tuple[str, Function]]:
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def length(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def public_names(node: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    for child in node.body:
        if isinstance(child, Documented) and not child.name.startswith("_"):
            if not is_setter(child):
                yield child
            if isinstance(child, ast.ClassDef):
                yield from public_names(child)


def is_setter(node: Documented) -> bool:
    return any(getattr(decorator, "attr", "") == "setter" for decorator in node.decorator_list)


def test_files_are_short() -> None:
    sizes = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    written = {name: lines for name, lines in sizes.items() if lines > 1}
    assert {name: lines for name, lines in sizes.items() if lines > 450} == {}
    assert median(written.values()) <= 120


def test_functions_are_short() -> None:
    lengths = {name: length(function) for name, function in functions()}
    assert {name: lines for name, lines in lengths.items() if lines > 60} == {}
    assert quantiles(lengths.values(), n=20)[-1] <= 35
    assert median(lengths.values()) <= 8


def test_the_app_class_only_composes_and_routes() -> None:
    for path in PACKAGE.glob("tui/*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and node.name.endswith("App"):
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 300, f"{name_of(path)}: {node.name}"


def test_every_function_says_what_it_returns() -> None:
    assert [name for name, function in functions() if function.returns is None] == []


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_public_names_are_explained(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    bare = [node.name for node in public_names(tree) if not ast.get_docstring(node)]
    assert bare == []


def test_broad_excepts_stay_at_the_thread_boundaries() -> None:
    found = set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and catches_everything(node):
                found.add(name_of(path))
    assert found <= THREAD_BOUNDARIES


def catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def test_no_module_keeps_state_behind_a_global_statement() -> None:
    users = [
        name_of(path)
        for path in SOURCES
        if any(isinstance(node, ast.Global) for node in ast.walk(tree_of(path)))
    ]
    assert users == []
