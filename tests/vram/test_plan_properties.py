"""Guards against a plan that is right on the cards we thought of and runs over on another.

Random models, machines and settings. What fits is judged here by walking through the bytes, not
by asking the planner. Each test prints how many examples it went through.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.buffers import GPU_RULE, HOST_RULE, BufferRule
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.layouts import ArenaPlanner, PlannedArena
from stratadesk.engine.vram.machine_facts import MachineFacts, Rates, System
from stratadesk.engine.vram.plan import VramPlan, make_plan
from stratadesk.engine.vram.plan_inputs import PlanInputs
from stratadesk.engine.vram.plan_json import REQUESTS
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.problems import check_settings
from stratadesk.engine.vram.regions import PHASES
from stratadesk.engine.vram.requests import RequestPlan
from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    LayerShape,
    ModelShape,
)
from stratadesk.errors import UsageError
from stratadesk.units import KIB, MIB
from tests.thorough import usual

EXAMPLES = usual(120, thorough=250)
"""Random plans a test looks at; at least one in eight must be of the kind the test is about."""

TOKENS = (1, 64, 65, 500, 4096, 20_000)


@st.composite
def mixers(draw: st.DrawFn) -> AttentionShape | DeltaNetShape:
    heads, size = draw(st.integers(1, 16)), draw(st.sampled_from([32, 64, 128]))
    if draw(st.booleans()):
        keys = size * draw(st.integers(1, heads))
        gated = draw(st.booleans())
        query = heads * size * (2 if gated else 1)
        return AttentionShape((query, keys, keys), heads * size, keys, keys, gated, True)
    inner = heads * size
    return DeltaNetShape((3 * inner, inner, heads, heads), inner, 3 * inner, 4, heads, size)


@st.composite
def feeds(draw: st.DrawFn, experts: int) -> FeedForwardShape:
    if not experts or draw(st.integers(0, 9)) == 0:
        return FeedForwardShape(draw(st.integers(1, 40)) * 64)
    inner = draw(st.integers(1, 16)) * 64
    return FeedForwardShape(
        draw(st.sampled_from([0, 64, 512])),
        experts,
        draw(st.integers(1, min(8, experts))),
        inner,
        aligned(draw(st.integers(1, 3 * MIB))),
        3 * inner * 512,
    )


@st.composite
def models(draw: st.DrawFn) -> ModelShape:
    experts = draw(st.sampled_from([0, 1, 4, 16, 64, 256]))
    count = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.tuples(mixers(), feeds(experts)), min_size=1, max_size=3))
    layers = tuple(
        LayerShape(aligned(draw(st.integers(1, 4 * MIB))), 1_000_000, *kinds[index % len(kinds)])
        for index in range(count)
    )
    head = aligned(draw(st.integers(1, 256 * MIB)))
    tied = draw(st.booleans())
    return ModelShape(
        name="random",
        architecture="random",
        width=64 * draw(st.integers(1, 48)),
        vocab=draw(st.integers(16, 250_000)),
        context=draw(st.integers(1, 100_000)),
        rotated=64,
        head_bytes=head,
        embedding_bytes=0 if tied else head,
        other_bytes=4096,
        tied=tied,
        layers=layers,
        draft=layers[:1] if draw(st.booleans()) else (),
    )


@st.composite
def machines(draw: st.DrawFn) -> MachineFacts:
    card = draw(st.integers(32, 20_000)) * MIB + draw(st.integers(0, MIB - 1))
    return MachineFacts(
        card=card,
        free=draw(st.none() | st.integers(0, card)),
        system=draw(st.sampled_from(list(System))),
        ram=draw(st.integers(1, 128)) << 30,
        commit=draw(st.none() | st.integers(1, 160).map(lambda gib: gib << 30)),
        rates=Rates(link=draw(st.floats(1e9, 60e9)), compute=draw(st.floats(1e11, 1e15))),
    )


@st.composite
def choices(draw: st.DrawFn) -> PlanSettings:
    mtp = draw(st.booleans())
    return PlanSettings(
        reserve=draw(st.integers(0, 2048)) * MIB,
        max_context=draw(st.sampled_from([0, 1, 4096, 20_000, 65_536])),
        kv_format=draw(st.sampled_from(list(KvFormat))),
        expert_cache=draw(st.none() | st.integers(1, 3000)),
        prefill=draw(st.none() | st.integers(1, 8192)),
        alias=draw(st.sampled_from(list(HeadAlias))),
        prefill_layout=draw(st.sampled_from([None, Layout.FIXED, Layout.LOAN])),
        short_read=draw(st.none() | st.integers(0, 1000)),
        pin=draw(st.none() | st.integers(0, 1 << 36)),
        mtp=mtp,
        drafts=draw(st.integers(0, 4)) if mtp else 0,
        block_bytes=draw(st.sampled_from([1, 64 * KIB, 2 * MIB, 32 * MIB])),
    )


@st.composite
def plans(draw: st.DrawFn) -> VramPlan:
    """A plan on a random card; nine of ten cards have about what the model needs."""
    shape, chosen, machine = draw(models()), draw(choices()), draw(machines())
    rule: BufferRule = draw(st.sampled_from([GPU_RULE, HOST_RULE]))
    try:
        check_settings(shape, chosen)
    except UsageError:
        chosen = PlanSettings(reserve=chosen.reserve, block_bytes=chosen.block_bytes)
    if draw(st.integers(0, 9)):
        needed = ArenaPlanner(PlanInputs(shape, machine, chosen, rule)).needed
        free = max(0, needed + chosen.reserve + draw(st.integers(-100, 900)) * MIB)
        machine = replace(machine, card=max(machine.card, free), free=free)
    return make_plan(shape, machine, chosen, rule)


def fits(plan: VramPlan) -> bool:
    return plan.planner.needed <= plan.planner.room


def run(
    body: Callable[[VramPlan], bool],
    capsys: pytest.CaptureFixture[str],
    what: str,
    examples_wanted: int = EXAMPLES,
) -> None:
    """Put `body` to random plans; it tells whether the example was one of the kind wanted."""
    counts = {True: 0, False: 0}

    @settings(
        max_examples=examples_wanted,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(plans())
    def examples(plan: VramPlan) -> None:
        counts[body(plan)] += 1

    examples()
    with capsys.disabled():
        print(f"\n{what}: {counts[True]:,} examples, {counts[False]:,} of another kind")
    assert counts[True] >= examples_wanted // 8


def requests(plan: VramPlan) -> Iterator[RequestPlan]:
    return (plan.request(tokens) for tokens in TOKENS)


def test_no_two_owners_share_a_byte_in_any_phase(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        for phase in PHASES:
            owned = [region for region in plan.regions if phase in region.phases]
            for one, other in combinations(owned, 2):
                assert not one.span.overlaps(other.span), (phase, one, other)
            assert all(0 <= region.span.start < region.span.end for region in owned)
            assert sum(region.span.size for region in owned) <= plan.arena.end
            assert all(region.span.end <= plan.arena.end for region in owned)
        return fits(plan)

    run(body, capsys, "regions apart")


def test_the_reserve_stays_free_in_every_phase(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        if not fits(plan):
            assert any(problem.fatal for problem in plan.problems)
            assert plan.refused
            return False
        for phase in PHASES:
            assert plan.free_bytes(phase) >= plan.settings.reserve
        assert plan.arena.end <= plan.mapped_bytes
        assert plan.mapped_bytes % plan.settings.block_bytes == 0
        return True

    run(body, capsys, "reserve free")


def test_a_request_takes_only_what_its_layout_may_take(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        prompts = [request for request in requests(plan) if request.layout is not None]
        for request in prompts:
            span, geometry = plan.buffer_span(request), plan.geometry
            assert request.layout is not None
            assert span.end <= plan.arena.end
            assert span.size >= plan.planner.buffers(request.chunk)
            assert span.start >= plan.parts.total
            touched = [slot for slot in range(plan.slots) if geometry.slot(slot).overlaps(span)]
            assert touched == list(range(request.slots_lent))
            assert span.overlaps(geometry.head) is request.head_out
        return fits(plan) and bool(prompts)

    run(body, capsys, "requests inside")


def holds(plan: VramPlan, layout: Layout, arena: PlannedArena, chunk: int) -> bool:
    """Whether buffers for `chunk` tokens fit, by adding up bytes."""
    n_bytes = aligned(plan.planner.buffers(chunk))
    if layout is Layout.ALIAS and plan.shape.tied:
        return False
    if layout is Layout.LOAN:
        return n_bytes <= slot_bytes(arena, arena.slots)
    if layout is Layout.ALIAS:
        return n_bytes <= arena.geometry.head.size + slot_bytes(arena, arena.slots)
    kept = plan.planner.wanted if plan.settings.expert_cache is not None else 0
    rest = plan.parts.total + arena.geometry.head.size + slot_bytes(arena, kept)
    return rest + n_bytes <= plan.planner.room


def slot_bytes(arena: PlannedArena, count: int) -> int:
    """Bytes of the first `count` slots, one by one."""
    sizes, layers = arena.geometry.slot_bytes, arena.geometry.layers
    return sum(sizes[slot % layers] for slot in range(count))


def test_the_largest_chunk_is_the_largest(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        shared = plan.planner.arena()
        for layout, facts in plan.layouts.items():
            assert facts.max_chunk % 64 == 0
            assert facts.max_chunk <= plan.planner.limit
            if facts.max_chunk:
                assert holds(plan, layout, shared, facts.max_chunk)
            if facts.max_chunk < plan.planner.limit:
                assert not holds(plan, layout, shared, facts.max_chunk + 64)
        return fits(plan) and any(
            0 < facts.max_chunk < plan.planner.limit for facts in plan.layouts.values()
        )

    run(body, capsys, "chunks largest", 500)


def test_as_many_slots_as_fit_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        if not fits(plan) or not plan.geometry.layers:
            return False
        assert sum(plan.arena.resident()) == plan.slots <= plan.planner.wanted
        if plan.slots < plan.planner.wanted:
            assert plan.geometry.end_of(plan.slots + 1) > plan.planner.room
        return True

    run(body, capsys, "slots complete")


def test_every_change_that_is_offered_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    """A shortage names settings; each of them, applied, leaves no shortage."""

    def body(plan: VramPlan) -> bool:
        if fits(plan) or "MiB short: " not in plan.problems[0].sentence:
            return False
        for flag, changed in offered(plan):
            fixed = make_plan(plan.shape, plan.machine, changed, plan.inputs.rule)
            assert not any("MiB short" in problem.sentence for problem in fixed.problems), flag
        return True

    run(body, capsys, "offers kept")


def offered(plan: VramPlan) -> Iterator[tuple[str, PlanSettings]]:
    words = plan.problems[0].sentence.split("short: ")[1].rstrip(".").split(", or ")
    for word in words:
        flag, _, value = word.partition(" ")
        changes: dict[str, Callable[[], PlanSettings]] = {
            "--max-context": lambda v=value: replace(plan.settings, max_context=int(v)),
            "--kv": lambda v=value: replace(plan.settings, kv_format=KvFormat(v)),
            "--no-mtp": lambda: replace(plan.settings, mtp=False, drafts=0),
            "--expert-cache": lambda v=value: replace(plan.settings, expert_cache=int(v)),
            "--prefill": lambda v=value: replace(plan.settings, prefill=int(v)),
            "--vram-reserve-mib": lambda v=value: replace(plan.settings, reserve=int(v) * MIB),
        }
        if flag in changes:
            yield word, changes[flag]()


def test_pinned_and_pageable_are_all_experts(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        experts = tuple(plan.shape.experts(plan.settings.mtp))
        total = sum(moe.experts * moe.expert_bytes for moe in experts)
        assert plan.host.pinned + plan.host.pageable == total
        assert 0 <= plan.host.pinned <= total
        if plan.settings.pin is None and plan.host.pinned:
            assert plan.host.pinned + plan.host.copies <= plan.machine.pin_budget()
        return bool(experts)

    run(body, capsys, "tiers complete")


def test_every_plan_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def body(plan: VramPlan) -> bool:
        assert max(map(len, plan.as_text().splitlines())) <= 110
        found = plan.as_json()
        assert isinstance(found["requests"], list)
        told = [request["tokens"] for request in found["requests"]]
        assert told == [tokens for tokens in REQUESTS if tokens <= plan.context]
        return fits(plan)

    run(body, capsys, "plans printed", 100)
