"""Who decides each setting: flag, then environment, project file, user file, default."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from stratadesk.errors import UsageError
from stratadesk.settings import quoted
from stratadesk.settings_file import (
    FileContents,
    Problem,
    project_file,
    read_settings,
    user_file,
)
from stratadesk.settings_schema import (
    InterfaceSettings,
    ModelSettings,
    Setting,
    all_settings,
    find_setting,
)
from stratadesk.settings_values import Kept, default_of, from_environment


class Source(StrEnum):
    """Where a value can come from, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    PROJECT = "project file"
    USER = "user file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Told:
    """A value and who says it; `place` is the flag, the variable, or file and line."""

    value: Kept
    source: Source
    place: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """A setting, the value that holds, and the values that it hides, the strongest first."""

    setting: Setting
    winner: Told
    hidden: tuple[Told, ...] = ()


class Decisions:
    """All settings with who decided them, and what was wrong with the files."""

    def __init__(self, decided: Mapping[str, Decided], problems: tuple[Problem, ...]) -> None:
        self._decided = decided
        self.problems = problems

    def __iter__(self) -> Iterator[Decided]:
        return iter(self._decided.values())

    def of(self, key: str) -> Decided:
        """Return the decision about one setting; raises `UsageError` for an unknown key."""
        return self._decided[find_setting(key).key]

    @property
    def fixed(self) -> frozenset[str]:
        """Fields that something stronger than the user's file decides."""
        weak = (Source.USER, Source.DEFAULT)
        return frozenset(
            decided.setting.flag.field for decided in self if decided.winner.source not in weak
        )

    @property
    def interface(self) -> InterfaceSettings:
        """How the chat looks."""
        return InterfaceSettings(**self._section("interface"))

    @property
    def models(self) -> ModelSettings:
        """Which models are offered and opened."""
        return ModelSettings(**self._section("models"))

    def _section(self, name: str) -> dict[str, Any]:
        mine = (decided for decided in self if decided.setting.section == name)
        return {decided.setting.flag.field: decided.winner.value for decided in mine}


def decide(flags: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Decisions:
    """Decide every setting. `flags` has the values given on the command line, by field.

    What is wrong in a file does not hold: the next in order decides, and `problems` says so.

    Raises:
        UsageError: an environment variable has a value that is not allowed.
    """
    project, user = read_settings(project_file()), read_settings(user_file())
    files = ((Source.PROJECT, project), (Source.USER, user))
    decided = {}
    for setting in all_settings():
        told = [*_told_by_flag(setting, flags), *_told_by_variable(setting, environment)]
        told += [said for source, file in files for said in _told_by_file(setting, source, file)]
        winner, *hidden = (*told, Told(default_of(setting.flag), Source.DEFAULT))
        hidden = [said for said in hidden if said.source is not Source.DEFAULT]
        decided[setting.key] = Decided(setting, winner, tuple(hidden))
    return Decisions(decided, (*project.problems, *user.problems))


def _told_by_flag(setting: Setting, flags: Mapping[str, object]) -> Iterator[Told]:
    flag = setting.flag
    if flag.names and flag.field in flags:
        given = flags[flag.field]
        value = tuple(given) if isinstance(given, list) else cast(Kept, given)
        yield Told(value, Source.FLAG, flag.names[-1])


def _told_by_variable(setting: Setting, environment: Mapping[str, str]) -> Iterator[Told]:
    try:
        value = from_environment(setting, environment)
    except ValueError as error:
        text = environment[setting.variable]
        raise UsageError(
            f"{setting.variable}={quoted(text)[1:-1]} is not {error}.", "Change it."
        ) from None
    if value is not None:
        yield Told(value, Source.ENVIRONMENT, setting.variable)


def _told_by_file(setting: Setting, source: Source, file: FileContents) -> Iterator[Told]:
    if setting.key in file.values:
        yield Told(file.values[setting.key], source, f"{file.path}, line {file.lines[setting.key]}")
