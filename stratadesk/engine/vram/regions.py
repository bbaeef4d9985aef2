"""The arena's regions and the phases in which each of them owns its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.layouts import FixedParts, PlannedArena
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.engine.vram.requests import RequestPlan

EMPTY = "empty"
LOADED = (
    "loading",
    "ready",
    "prompt",
    "returning",
    "decoding",
    "cancelling",
    "resizing",
    "failed",
)
"""Phases (DESIGN 3) in which the arena exists; it has the same size in all of them."""

PHASES = (EMPTY, *LOADED)

BORROWING = ("prompt", "cancelling")
"""Phases in which a prompt's buffers may lie over the head and over lent slots."""

_RETURNED = tuple(phase for phase in LOADED if phase not in BORROWING)


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the arena with one owner in each of `phases`; no two owners share a phase."""

    name: str
    span: Span
    phases: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return the object that `stratadesk plan --json` prints for this region."""
        return {"name": self.name, "bytes": self.span.size, "phases": list(self.phases)}


def regions_of(
    arena: PlannedArena, parts: FixedParts, prompt: RequestPlan | None
) -> tuple[Region, ...]:
    """Return all regions that are not empty, with the buffers of `prompt` where it has some."""
    return tuple(region for region in _regions(arena, parts, prompt) if region.span.size)


def _regions(
    arena: PlannedArena, parts: FixedParts, prompt: RequestPlan | None
) -> Iterator[Region]:
    start = 0
    for name, n_bytes in (
        ("dense weights", parts.dense),
        ("kv cache", parts.kv),
        ("recurrent state", parts.state),
        ("decode scratch", parts.scratch),
        ("staging slot", parts.staging),
        ("prompt buffers", arena.fixed_buffers),
    ):
        yield Region(name, Span(start, start + n_bytes), LOADED)
        start += n_bytes
    borrowing = prompt is not None and prompt.layout not in (None, Layout.FIXED)
    head_out = prompt is not None and prompt.head_out
    yield Region("head", arena.geometry.head, _RETURNED if head_out else LOADED)
    lent_end = arena.geometry.end_of(prompt.slots_lent if prompt and borrowing else 0)
    yield Region("expert slots, lent", Span(arena.geometry.rows_start, lent_end), _RETURNED)
    yield Region("expert slots", Span(lent_end, arena.end), LOADED)
    if prompt is not None and prompt.layout is not None and borrowing:
        yield Region("prompt buffers", arena.span(prompt.layout, prompt.buffer_bytes), BORROWING)
