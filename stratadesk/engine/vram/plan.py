"""The plan for a card: every region, slot and tier in bytes, and how each request is read.

Pure arithmetic on a model's shape, a machine and settings: no GPU, no backend, no tensor data.

    plan = make_plan(read_shape(gguf), MachineFacts(), PlanSettings())
    plan.request(2_000).layout
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stratadesk.engine.vram.buffers import GPU_RULE, BufferRule
from stratadesk.engine.vram.costs import CostModel
from stratadesk.engine.vram.geometry import ArenaGeometry, Span
from stratadesk.engine.vram.host_memory import HostMemory, host_memory
from stratadesk.engine.vram.layouts import (
    ArenaPlanner,
    FixedParts,
    LayoutFacts,
    PlannedArena,
    whole_steps,
)
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_inputs import PlanInputs
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.problems import (
    Problem,
    ShortageFinder,
    check_settings,
    chunk_problem,
    context_problem,
    host_problems,
    more_room,
    slots_note,
)
from stratadesk.engine.vram.regions import EMPTY, Region, regions_of
from stratadesk.engine.vram.requests import RequestPlan, RequestPlanner
from stratadesk.engine.vram.resident import ResidentModel
from stratadesk.engine.vram.shape import ModelShape
from stratadesk.errors import MemoryShortageError


@dataclass(frozen=True, slots=True)
class VramPlan:
    """What is where. All sizes and offsets are bytes.

    `arena` is the one to load, `parts` the sizes in its fixed region. `layouts` describes each
    layout at its largest chunk in the arena that suits it. `regions` and their phases are those
    of a prompt that fills the context. `problems` are those found, the fatal ones first.
    """

    inputs: PlanInputs
    parts: FixedParts
    arena: PlannedArena
    host: HostMemory
    layouts: Mapping[Layout, LayoutFacts]
    regions: tuple[Region, ...]
    problems: tuple[Problem, ...]
    requests: RequestPlanner
    planner: ArenaPlanner

    @property
    def shape(self) -> ModelShape:
        """The model."""
        return self.inputs.shape

    @property
    def machine(self) -> MachineFacts:
        """The machine it is planned for."""
        return self.inputs.machine

    @property
    def settings(self) -> PlanSettings:
        """The choices it keeps to."""
        return self.inputs.settings

    @property
    def context(self) -> int:
        """Tokens the context holds."""
        return self.inputs.context

    @property
    def geometry(self) -> ArenaGeometry:
        """Where head, rows and slots lie."""
        return self.arena.geometry

    @property
    def slots(self) -> int:
        """Expert slots in all, the staging slot not counted."""
        return self.arena.slots

    @property
    def mapped_bytes(self) -> int:
        """Bytes the arena takes of the card: its end, rounded up to whole blocks."""
        block = self.settings.block_bytes
        return -(-self.arena.end // block) * block

    @property
    def refused(self) -> bool:
        """Whether this must not be carried out: something fatal, and no `force` or no room."""
        if self.mapped_bytes > self.machine.free_before:
            return True
        return not self.settings.force and any(problem.fatal for problem in self.problems)

    def free_bytes(self, phase: str) -> int:
        """Bytes of the card that stay free in a phase, the reserve among them."""
        return self.machine.free_before - (0 if phase == EMPTY else self.mapped_bytes)

    def request(self, tokens: int) -> RequestPlan:
        """How `tokens` fresh tokens (at least 1) are read."""
        return self.requests.choose(self.arena, tokens)

    def buffer_span(self, request: RequestPlan) -> Span:
        """Where the request's buffers lie; empty for the decode path."""
        if request.layout is None:
            return Span(0, 0)
        return self.arena.span(request.layout, request.buffer_bytes)

    @property
    def refusal(self) -> Problem | None:
        """The problem for which `check` refuses the plan, None where it does not or has none."""
        fatal = (problem for problem in self.problems if problem.fatal)
        return next(fatal, None) if self.refused else None

    def check(self) -> None:
        """Raise MemoryShortageError, with the first fatal problem, for a refused plan."""
        if not self.refused:
            return
        fatal = self.refusal
        if fatal is None:
            raise MemoryShortageError(
                "The card has no room for this model.",
                more_room(self.inputs),
            )
        raise MemoryShortageError(fatal.sentence, fatal.remedy)

    def as_json(self, resident: ResidentModel | None = None) -> dict[str, object]:
        """Return the object that `stratadesk plan --json` prints; see `plan_object`."""
        from stratadesk.engine.vram.plan_json import plan_object

        return plan_object(self, resident)

    def as_text(self, resident: ResidentModel | None = None) -> str:
        """Return the same for people: tables, a bar, and what the alias buys here."""
        from stratadesk.engine.vram.plan_text import plan_text

        return plan_text(self, resident)


def make_plan(
    shape: ModelShape,
    machine: MachineFacts,
    settings: PlanSettings,
    rule: BufferRule = GPU_RULE,
) -> VramPlan:
    """Plan `shape` on `machine`; the engine passes its own backend's `rule`.

    Raises:
        UsageError: settings that cannot work with this model.
    """
    check_settings(shape, settings)
    inputs = PlanInputs(shape, machine, settings, rule)
    planner = ArenaPlanner(inputs)
    arena = planner.arena(_fixed_chunk(planner, settings))
    host = host_memory(shape, machine, settings, arena)
    costs = CostModel(shape.running(settings.mtp), machine.rates, host.pinned_share)
    requests = RequestPlanner(planner, settings, costs, rule.decode_window)
    return VramPlan(
        inputs=inputs,
        parts=planner.parts,
        arena=arena,
        host=host,
        layouts=MappingProxyType({layout: planner.facts(layout) for layout in Layout}),
        regions=regions_of(arena, planner.parts, requests.choose(arena, inputs.context)),
        problems=_problems(inputs, host, planner, requests.largest_chunk(arena)),
        requests=requests,
        planner=planner,
    )


def _fixed_chunk(planner: ArenaPlanner, settings: PlanSettings) -> int:
    """The chunk that gets buffers of its own in the arena, 0 for none.

    Chosen by `--prefill-layout`; left to the planner, it is so where these bytes serve nothing
    else (every expert has a slot, or there are none), or where no other layout holds a chunk.
    """
    if settings.prefill_layout is Layout.LOAN:
        return 0
    if settings.prefill_layout is Layout.FIXED:
        return planner.fixed_chunk(settings.prefill)
    usable = settings.alias is not HeadAlias.OFF
    alias = planner.facts(Layout.ALIAS).max_chunk if usable else 0
    if alias and settings.alias is HeadAlias.ON:
        return 0
    wanted = min(planner.limit, settings.prefill or planner.limit)
    spare = planner.spare_chunk()
    if spare >= wanted or (spare and not planner.most_slots):
        return min(spare, whole_steps(wanted))
    if alias or planner.facts(Layout.LOAN).max_chunk:
        return 0
    return planner.fixed_chunk(settings.prefill)


def _problems(
    inputs: PlanInputs, host: HostMemory, planner: ArenaPlanner, largest_chunk: int
) -> tuple[Problem, ...]:
    """All problems, the fatal ones first; a chunk is judged only where the model itself fits."""
    settings = inputs.settings
    short = ShortageFinder(inputs).problem()
    chunk = None if short else chunk_problem(planner, settings, largest_chunk)
    found = (
        short,
        chunk,
        context_problem(inputs.shape, settings),
        slots_note(settings, planner.most_slots),
        *host_problems(inputs.machine, settings, host),
    )
    real = (problem for problem in found if problem is not None)
    return tuple(sorted(real, key=lambda problem: not problem.fatal))
