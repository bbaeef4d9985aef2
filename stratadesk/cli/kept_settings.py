"""Settings from the environment and from files, filled in where the command line says nothing."""

import argparse
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from stratadesk.cli.terminal import print_error
from stratadesk.settings_schema import SECTIONS

if TYPE_CHECKING:
    from stratadesk.settings_file import Problem
    from stratadesk.settings_order import Decisions

FIELDS = "kept_fields"
SECTION_NAMES = tuple(section.name for section in SECTIONS)
IGNORED = "It is ignored until it is mended."


def with_kept(
    arguments: argparse.Namespace, sections: Collection[str] = SECTION_NAMES
) -> tuple[argparse.Namespace, "Decisions"]:
    """Return the arguments with the settings of `sections` filled in, and all decisions.

    Problems in the files are told on standard error, one line each; keys that are only unknown
    go to the log.

    Raises:
        UsageError: an environment variable has a value that is not allowed.
    """
    from stratadesk.settings_order import Source, decide

    written = vars(arguments)
    decisions = decide(written)
    kept = {
        decided.setting.flag.field: _as_given(decided.winner.value)
        for decided in decisions
        if decided.setting.section in sections
        and decided.winner.source not in (Source.FLAG, Source.DEFAULT)
    }
    tell_problems(decisions.problems)
    filled = argparse.Namespace(**written | kept)
    setattr(filled, FIELDS, frozenset(kept))
    return filled, decisions


def kept_fields(arguments: argparse.Namespace) -> frozenset[str]:
    """Return the fields that `with_kept` has filled in."""
    fields: frozenset[str] = getattr(arguments, FIELDS, frozenset())
    return fields


def tell_problems(problems: Iterable["Problem"]) -> None:
    """Say on standard error what is wrong in a settings file and that it does not hold."""
    import logging

    for problem in problems:
        if problem.unknown:
            logging.getLogger(__name__).info("not used: %s", problem)
        else:
            print_error(f"warning: {problem}", IGNORED)


def _as_given(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
