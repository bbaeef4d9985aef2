"""`models`: the models found on this machine, where they lie, and which of them run."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stratadesk.exit_codes import ExitCode

if TYPE_CHECKING:
    from stratadesk.models import Discovery, FoundModel, SkippedFile

NAME = "models"
KEEPERS = "LM Studio, Hugging Face, Ollama, llama.cpp and Jan"
PURPOSE = "list the models found on this machine"
EXAMPLES = """\
examples:
  stratadesk models
  stratadesk models --json
  STRATADESK_MODELS=/mnt/models stratadesk models

Any name in the list, or the beginning of one that no other begins with, can follow -m. Files that
are no models of their own stand below the list with the reason.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let `parser` take the flags of `models`."""
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object")


def models(arguments: argparse.Namespace) -> int:
    """Search and print what was found; finding nothing is no failure."""
    from stratadesk.cli.kept_settings import tell_problems
    from stratadesk.models import find_models
    from stratadesk.settings_order import decide

    decisions = decide({})
    tell_problems(decisions.problems)
    found = find_models(folders=decisions.models.folders)
    if arguments.json:
        import json

        print(json.dumps(as_json(found), ensure_ascii=False, indent=2))
    else:
        print("\n".join(as_lines(found)))
    return ExitCode.OK


def as_json(found: "Discovery") -> dict[str, object]:
    """Return the object that `models --json` prints; sizes are bytes."""
    return {
        "models": [
            {
                "name": model.name,
                "path": str(model.path),
                "store": model.store,
                "architecture": model.architecture,
                "total_bytes": model.total_bytes,
                "shards": model.shards,
                "supported": model.supported,
                "why_not": model.why_not,
            }
            for model in found.models
        ],
        "skipped": [{"path": str(file.path), "reason": file.reason} for file in found.skipped],
    }


def as_lines(found: "Discovery") -> Iterator[str]:
    """Write a table with each model's path below its line, then what was passed over."""
    if found.models:
        yield from _table([_cells(model) for model in found.models], found.models)
    if not found.others:
        other = "other " if found.models else ""
        yield f"No {other}model was found where {KEEPERS} keep"
        yield "theirs. Name a file with -m, or further folders with STRATADESK_MODELS."
    if found.skipped:
        yield ""
        yield "Not offered:"
        yield from map(_skipped, found.skipped)


def _cells(model: "FoundModel") -> tuple[str, ...]:
    from stratadesk.engine.inspection_table import printable
    from stratadesk.units import format_bytes

    runs = "runs" if model.supported else "does not run"
    size, family = format_bytes(model.total_bytes), printable(model.architecture)
    return printable(model.name), size, family, model.store, runs


def _table(rows: Sequence[Sequence[str]], models: Sequence["FoundModel"]) -> Iterator[str]:
    from stratadesk.engine.inspection_table import printable

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for (name, size, *others), model in zip(rows, models, strict=True):
        words = (f"{cell:<{width}}" for cell, width in zip(others, widths[2:], strict=True))
        yield f"{name:<{widths[0]}}  {size:>{widths[1]}}  {'  '.join(words)}".rstrip()
        yield f"    {printable(str(model.path))}"
        if model.why_not:
            yield f"    {printable(model.why_not)}"


def _skipped(file: "SkippedFile") -> str:
    from stratadesk.engine.inspection_table import printable

    return f"    {printable(str(file.path))}: {printable(file.reason)}"
