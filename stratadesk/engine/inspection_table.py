"""Draws an inspection as a table for people."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from stratadesk.units import format_bytes

if TYPE_CHECKING:
    from stratadesk.engine.inspection import Inspection

_UNKNOWN = "–"
_TYPES_SHOWN = 2


def render_table(inspection: "Inspection") -> str:
    """Return the facts and, below, the bytes per tensor group, biggest first."""
    facts = "\n".join(f"  {name:<16}{value}" for name, value in _facts(inspection))
    groups = "\n".join(_group_lines(inspection.tensors))
    title = printable(inspection.name)
    return f"{title}\n\n{facts}\n\n{groups}" if groups else f"{title}\n\n{facts}"


def printable(text: str) -> str:
    """Replace what a terminal would act on instead of showing it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _facts(inspection: "Inspection") -> Iterator[tuple[str, str]]:
    yield "architecture", printable(inspection.architecture)
    yield "size", format_bytes(inspection.file_bytes)
    yield "layers", _count(inspection.layers)
    yield "experts", _experts(inspection)
    yield "context", _count(inspection.context_length, "tokens")
    yield "output head", format_bytes(inspection.head_bytes)
    yield "tokenizer", _tokenizer(inspection)
    yield "chat template", "yes" if inspection.chat_template else "no"
    yield "supported", "yes" if inspection.why_not is None else f"no. {inspection.why_not}"


def _count(number: int, unit: str = "") -> str:
    return f"{number:,} {unit}".rstrip() if number else _UNKNOWN


def _experts(inspection: "Inspection") -> str:
    if not inspection.experts:
        return "none (dense)"
    return f"{inspection.experts:,}, of which {inspection.experts_used:,} per token"


def _tokenizer(inspection: "Inspection") -> str:
    facts = inspection.tokenizer
    kind = " / ".join(printable(name) for name in (facts.model, facts.pre) if name)
    return f"{kind}, {facts.size:,} tokens" if kind else _UNKNOWN


def _group_lines(tensors: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    sums = {group: sum(types.values()) for group, types in tensors.items() if types}
    total = sum(sums.values())
    if not total:
        return
    yield f"  {'tensors':<16}{'size':>10}{'share':>8}  types"
    for group in sorted(sums, key=sums.__getitem__, reverse=True):
        share = f"{sums[group] / total:.1%}"
        types = _types(tensors[group])
        yield f"  {group:<16}{format_bytes(sums[group]):>10}{share:>8}  {types}"
    yield f"  {'total':<16}{format_bytes(total):>10}"


def _types(types: Mapping[str, int]) -> str:
    ordered = sorted(types, key=types.__getitem__, reverse=True)
    if len(ordered) == 1:
        return ordered[0]
    words = [f"{name} {format_bytes(types[name])}" for name in ordered[:_TYPES_SHOWN]]
    more = len(ordered) - _TYPES_SHOWN
    return ", ".join([*words, f"{more} more"] if more > 0 else words)
