"""The arena a model gets, and where each layout puts a prompt's buffers in it (DESIGN 2).

*fixed*: a region of their own. *loan*: rows lent from row 0 up. *alias*: the head's bytes first,
then rows. Offsets and sizes are bytes.
"""

from bisect import bisect_right
from dataclasses import dataclass

from stratadesk.engine.vram.buffers import CHUNK_STEP, LARGEST_CHUNK, PromptBuffers
from stratadesk.engine.vram.geometry import ArenaGeometry, Span, aligned
from stratadesk.engine.vram.plan_inputs import PlanInputs
from stratadesk.engine.vram.plan_settings import STAGING_ONLY, Layout

MODEST, LEAST_FIXED_CHUNK = 8, 512
"""A fixed layout whose chunk nobody chose gives up one slot in eight, but reads 512 tokens."""


@dataclass(frozen=True, slots=True)
class FixedParts:
    """What no phase lends, in the arena's order; all sizes are aligned."""

    dense: int
    kv: int
    state: int
    scratch: int
    staging: int

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return self.dense + self.kv + self.state + self.scratch + self.staging


def fixed_parts(inputs: PlanInputs) -> FixedParts:
    """Return the sizes of what stays; recurrent state counts twice (one per step parity).

    The scratch holds the buffers of a decode window and the logits of a step.
    """
    shape, settings, rule = inputs.shape, inputs.settings, inputs.rule
    layers = shape.running(settings.mtp)
    staging = max((moe.expert_bytes for moe in shape.experts(settings.mtp)), default=0)
    window = max(rule.decode_window, 1 + settings.drafts)
    buffers = PromptBuffers(shape, rule, settings.mtp).activations(window)
    scratch = buffers + 4 * shape.vocab * (1 + settings.drafts)
    return FixedParts(
        dense=shape.dense_bytes(settings.mtp),
        kv=sum(layer.kv_bytes(inputs.context, settings.kv_format) for layer in layers),
        state=2 * (sum(layer.state_bytes for layer in layers) + shape.carried_bytes(settings.mtp)),
        scratch=aligned(max(scratch, rule.least_scratch - staging)),
        staging=aligned(staging),
    )


def chunk_limit(context: int) -> int:
    """The largest chunk worth reading: the context in whole steps, at most `LARGEST_CHUNK`."""
    return min(LARGEST_CHUNK, whole_steps(context))


def whole_steps(tokens: int) -> int:
    """Round up to a multiple of `CHUNK_STEP`."""
    return -(-tokens // CHUNK_STEP) * CHUNK_STEP


@dataclass(frozen=True, slots=True)
class PlannedArena:
    """An arena with `slots` slots; `fixed_buffers` bytes lie at the end of its fixed part."""

    geometry: ArenaGeometry
    slots: int
    fixed_buffers: int

    @property
    def end(self) -> int:
        """The first offset behind the last slot."""
        return self.geometry.end_of(self.slots)

    def start(self, layout: Layout) -> int:
        """Where a prompt's buffers begin."""
        starts = {
            Layout.FIXED: self.geometry.fixed_bytes - self.fixed_buffers,
            Layout.LOAN: self.geometry.rows_start,
            Layout.ALIAS: self.geometry.head.start,
        }
        return starts[layout]

    def room(self, layout: Layout) -> int:
        """Bytes that a prompt's buffers may have at most; a head that is not lent gives none."""
        if layout is Layout.FIXED:
            return self.fixed_buffers
        if layout is Layout.ALIAS and not self.geometry.head.size:
            return 0
        return self.end - self.start(layout)

    def span(self, layout: Layout, n_bytes: int) -> Span:
        """Where buffers of `n_bytes` lie."""
        start = self.start(layout)
        return Span(start, start + n_bytes)

    def lent(self, layout: Layout, n_bytes: int) -> int:
        """Slots that buffers of `n_bytes` take; always those from 0 up."""
        if layout is Layout.FIXED:
            return 0
        return self.geometry.slots_touched(self.span(layout, n_bytes).end)

    def resident(self, lent: int = 0) -> tuple[int, ...]:
        """Experts each layer keeps in slots while `lent` slots are lent."""
        layers = self.geometry.layers
        return tuple(
            len(range(layer, self.slots, layers)) - len(range(layer, lent, layers))
            for layer in range(layers)
        )


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """The largest chunk (tokens, 0 for none) a layout holds, and what that chunk takes."""

    layout: Layout
    max_chunk: int
    buffer_bytes: int
    slots_lent: int
    slots_total: int


class ArenaPlanner:
    """Lays out arenas that fit the room there is; the head is in all of them."""

    def __init__(self, inputs: PlanInputs) -> None:
        settings = inputs.settings
        self.room = inputs.room
        self.parts = fixed_parts(inputs)
        self.buffers = PromptBuffers(inputs.shape, inputs.rule, settings.mtp)
        self.limit = chunk_limit(inputs.context)
        self._head = inputs.shape.lendable_head
        experts = tuple(inputs.shape.experts(settings.mtp))
        self._slot_bytes = tuple(moe.expert_bytes for moe in experts)
        self.most_slots = len(experts) * max((moe.experts for moe in experts), default=0)
        self._asked = settings.expert_cache

    @property
    def wanted(self) -> int:
        """Slots that are asked for, or as many as there are experts."""
        if self._asked is None:
            return self.most_slots
        return 0 if self._asked == STAGING_ONLY else min(self._asked, self.most_slots)

    @property
    def needed(self) -> int:
        """Bytes without which there is no arena: fixed parts, head, and slots asked for."""
        return self._geometry(0).end_of(0 if self._asked is None else self.wanted)

    def arena(self, chunk: int = 0) -> PlannedArena:
        """The arena with fixed buffers for `chunk` tokens, and all the slots that fit."""
        buffers = aligned(self.buffers(chunk)) if chunk else 0
        geometry = self._geometry(buffers)
        slots = min(self.wanted, geometry.slots_within(self.room))
        return PlannedArena(geometry, slots, buffers)

    def largest_chunk(self, room: int) -> int:
        """The largest multiple of `CHUNK_STEP` whose buffers fit `room` bytes, 0 for none."""
        steps = range(CHUNK_STEP, self.limit + 1, CHUNK_STEP)
        fitting = bisect_right(steps, room, key=lambda chunk: aligned(self.buffers(chunk)))
        return steps[fitting - 1] if fitting else 0

    def largest_fixed_chunk(self) -> int:
        """The largest chunk whose own buffers leave room for what is needed."""
        return self.largest_chunk(self.room - self.needed)

    def fixed_chunk(self, chosen: int | None) -> int:
        """The chunk for buffers of their own: as chosen, else a modest one, if that much fits.

        Modest is the largest that costs at most one slot in `MODEST`; where that is below
        `LEAST_FIXED_CHUNK`, it is this.
        """
        kept = self.arena().slots * (MODEST - 1) // MODEST
        modest = self.largest_chunk(self.room - self._geometry(0).end_of(kept))
        wanted = whole_steps(chosen) if chosen else max(modest, LEAST_FIXED_CHUNK)
        return min(self.largest_fixed_chunk(), wanted)

    def spare_chunk(self) -> int:
        """The largest chunk for which bytes are left when every expert has its slot, else 0."""
        arena = self.arena()
        return self.largest_chunk(self.room - arena.end) if arena.slots == self.most_slots else 0

    def facts(self, layout: Layout) -> LayoutFacts:
        """The largest chunk of `layout` in the arena made for it."""
        chunk = self.largest_fixed_chunk() if layout is Layout.FIXED else 0
        return self.facts_in(self.arena(chunk), layout)

    def facts_in(self, arena: PlannedArena, layout: Layout) -> LayoutFacts:
        """The largest chunk of `layout` in `arena`."""
        chunk = self.largest_chunk(arena.room(layout))
        n_bytes = aligned(self.buffers(chunk)) if chunk else 0
        lent = arena.lent(layout, n_bytes) if chunk else 0
        return LayoutFacts(layout, chunk, n_bytes, lent, arena.slots)

    def _geometry(self, buffers: int) -> ArenaGeometry:
        return ArenaGeometry(self.parts.total + buffers, self._head, self._slot_bytes)
