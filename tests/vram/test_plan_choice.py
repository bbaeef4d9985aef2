"""Guards against a request that is read in a slower way than it could be, or in too little room."""

import pytest

from stratadesk.engine.vram.buffers import HOST_RULE
from stratadesk.engine.vram.costs import HIT_RATES, distinct_experts, hit_rate
from stratadesk.engine.vram.layouts import chunk_limit
from stratadesk.engine.vram.machine_facts import MachineFacts, Rates
from stratadesk.engine.vram.plan import make_plan
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.shape import (
    ModelShape,
)
from stratadesk.units import MIB
from tests.vram.plan_models import dense_model, plan_of, tiny_moe


def test_fixed_buffers_cost_slots_for_ever_and_the_others_none(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    fixed, loan, alias = (plan.layouts[layout] for layout in Layout)
    assert (fixed.max_chunk, loan.max_chunk, alias.max_chunk) == (8192, 8192, 8192)
    assert (loan.slots_total, alias.slots_total) == (2616, 2616)
    # 3,265.8 of the 4,169.8 MiB are left, which is 51.2 rows.
    assert fixed.slots_total == 51 * 40 + 9
    assert fixed.slots_lent == 0


@pytest.mark.parametrize("card", [3700, 4096, 6144, 8151, 16_376])
def test_short_reads_lend_no_slot_on_any_card(shape_35b: ModelShape, card: int) -> None:
    plan = plan_of(shape_35b, MachineFacts(card=card * MIB))
    assert [plan.request(tokens).slots_lent for tokens in (1, 16, 64)] == [0, 0, 0]
    loaned = plan_of(shape_35b, MachineFacts(card=card * MIB), alias=HeadAlias.OFF)
    assert [loaned.request(tokens).path for tokens in (1, 16, 64)] == ["decode"] * 3


def test_short_reads_are_decoded(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    for tokens in (1, 16, 64):
        request = plan.request(tokens)
        assert (request.path, request.layout, request.slots_lent) == ("decode", None, 0)
        assert request.refill == request.head_return == 0
        assert "short" in request.why
    assert plan.request(256).path == "prompt"


def test_a_choice_is_the_quickest_of_all_that_are_allowed(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    for tokens in (100, 512, 2048, 5000, 29_854):
        chosen = plan.request(tokens)
        for layout in (Layout.LOAN, Layout.ALIAS):
            for chunk in range(64, min(8192, tokens + 63) + 1, 64):
                other = plan.requests.prompt(plan.arena, layout, chunk, tokens)
                assert chosen.seconds <= other.seconds + 1e-6
        assert chosen.seconds <= plan.requests.decode(plan.arena, tokens).seconds + 1e-6


def test_the_terms_are_those_worked_out_by_hand(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, prefill=2048, alias=HeadAlias.ON, short_read=0)
    request = plan.request(2048)
    missing = sum(256 * (1 - (1 - 8 / 256) ** 2048) - held for held in plan.arena.resident())
    assert request.reading.link == pytest.approx(missing * 1_671_168 / 12.5e9)
    routed, shared, router = 8 * 3 * 2048 * 512, 3 * 2048 * 512, 256 * 2048
    experts = 40 * (routed + shared + router)
    attention = 10 * (8192 + 1024 + 4096) * 2048
    delta = 30 * ((8192 + 4096 + 4096 + 64) * 2048 + 8192 * 4)
    flops = 2 * (experts + attention + delta) + 10 * 4 * 4096 * 1024 + 30 * 6 * 32 * 128**2
    assert request.reading.compute == pytest.approx(2048 * flops / 15e12)
    assert request.head_return == pytest.approx(349_634_560 / 12.5e9)
    assert request.refill == 0
    assert request.seconds == request.reading.both + request.head_return
    assert "--prefill-head-alias on" in request.why


def test_a_loan_is_paid_by_refilling(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, prefill=2048, alias=HeadAlias.OFF, short_read=0)
    request = plan.request(2048)
    assert (request.layout, request.slots_lent, request.head_out) == (Layout.LOAN, 190, False)
    assert request.refill == pytest.approx(190 * 1_671_168 / 12.5e9)
    assert request.head_return == 0


def test_settings_decide_by_hand(shape_35b: ModelShape) -> None:
    assert plan_of(shape_35b, short_read=4096).request(4096).path == "decode"
    assert plan_of(shape_35b, short_read=4096).request(4097).path == "prompt"
    assert plan_of(shape_35b, short_read=0).request(1).path == "prompt"
    for tokens in (512, 8192):
        assert plan_of(shape_35b, alias=HeadAlias.ON).request(tokens).head_out
        assert not plan_of(shape_35b, alias=HeadAlias.OFF).request(tokens).head_out
    assert plan_of(shape_35b, prefill=1024).request(8192).chunk == 1024
    assert plan_of(shape_35b, prefill=1024, short_read=0).request(100).chunk == 128


def test_a_fixed_layout_is_chosen_when_loading(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, prefill_layout=Layout.FIXED, prefill=2048, alias=HeadAlias.OFF)
    buffers = plan.arena.fixed_buffers
    assert buffers == 64 * 1_671_168 + 2048 * 102_656
    assert plan.slots == 2616 - 190
    request = plan.request(2048)
    assert (request.layout, request.slots_lent) == (Layout.FIXED, 0)
    assert plan.buffer_span(request).end == plan.geometry.head.start


@pytest.mark.parametrize(("chunk", "context"), [(100, 4096), (1, 4096), (512, 50), (8192, 1000)])
def test_any_chunk_may_be_chosen_also_one_beyond_the_context(chunk: int, context: int) -> None:
    chosen = {"prefill": chunk, "max_context": context, "short_read": 0, "alias": HeadAlias.OFF}
    for layout in (Layout.FIXED, Layout.LOAN):
        plan = make_plan(
            tiny_moe(slots=64),
            MachineFacts(),
            PlanSettings(prefill_layout=layout, **chosen),  # type: ignore[arg-type]
            HOST_RULE,
        )
        assert plan.problems == ()
        request = plan.request(context)
        assert (request.layout, request.chunk) == (layout, min(chunk, -(-context // 64) * 64))
        assert plan.buffer_span(request).size >= plan.planner.buffers(min(chunk, context))


def test_a_fixed_chunk_nobody_chose_is_modest(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, prefill_layout=Layout.FIXED)
    assert plan.slots >= 2616 * 7 // 8
    chunk = plan.planner.largest_chunk(plan.arena.fixed_buffers)
    larger = plan_of(shape_35b, prefill_layout=Layout.FIXED, prefill=chunk + 64)
    assert larger.slots < 2616 * 7 // 8


def test_fixed_buffers_are_free_where_every_expert_has_its_slot() -> None:
    plan = plan_of(tiny_moe())
    assert plan.slots == plan.planner.most_slots == 52
    assert plan.arena.fixed_buffers
    assert plan.request(4096).layout is Layout.FIXED


def test_a_dense_model_has_no_rows_and_reads_in_buffers_of_its_own() -> None:
    for tied in (False, True):
        plan = plan_of(dense_model(tied=tied))
        assert (plan.slots, plan.geometry.layers) == (0, 0)
        assert plan.layouts[Layout.LOAN].max_chunk == 0
        assert plan.request(4096).layout is Layout.FIXED
        assert plan.host.experts == 0
        assert "experts" not in plan.as_text().split("RAM")[0]


def test_a_dense_model_without_room_reads_in_its_head() -> None:
    shape = dense_model(layers=8)
    tight = make_plan(shape, MachineFacts(), PlanSettings()).planner.needed
    machine = MachineFacts(free=tight + 590 * MIB)
    plan = plan_of(shape, machine)
    assert plan.problems == ()
    assert plan.arena.fixed_buffers == 0
    assert plan.request(4096).layout is Layout.ALIAS


def test_one_expert_slot_means_the_staging_slot_alone(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, expert_cache=1)
    assert (plan.slots, plan.host.slot) == (0, 0)
    assert plan.parts.staging == 1_671_168
    # 333.4 MiB of head less a ring of 102 are 231.4, at 100.25 KiB a token.
    assert plan.layouts[Layout.ALIAS].max_chunk == 2304
    assert plan.layouts[Layout.LOAN].max_chunk == 0
    assert "loan holds none" in " ".join(plan.as_text().split())
    assert plan_of(shape_35b, expert_cache=2).slots == 2
    assert plan_of(shape_35b, expert_cache=500).slots == 500


def test_without_alias_one_slot_falls_back_to_buffers_of_its_own(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, expert_cache=1, alias=HeadAlias.OFF)
    assert plan.request(4096).layout is Layout.FIXED


def test_the_arena_is_whole_blocks(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, block_bytes=32 * MIB)
    assert plan.mapped_bytes % (32 * MIB) == 0
    assert plan.free_bytes("prompt") >= 590 * MIB
    assert plan.slots < 2616


def test_slow_links_and_fast_ones_change_the_choice(shape_35b: ModelShape) -> None:
    slow_link = MachineFacts(rates=Rates(link=1e9, pageable=1e9))
    slow_card = MachineFacts(rates=Rates(compute=1e12))
    # As few chunks as the largest one makes of it, all of about the same size.
    assert plan_of(shape_35b, slow_link).request(29_854).chunk == 7488
    assert plan_of(shape_35b, slow_card).request(29_854).chunk < 1024


def test_distinct_experts_and_hit_rates_are_the_published_ones() -> None:
    assert [round(distinct_experts(256, 8, tokens)) for tokens in (16, 64, 128)] == [102, 222, 252]
    assert [hit_rate(share) for share, _ in HIT_RATES] == [rate for _, rate in HIT_RATES]
    assert hit_rate(0.03) == pytest.approx(0.185)
    assert hit_rate(2.0) == 1.0


def test_chunks_end_at_the_context() -> None:
    assert [chunk_limit(tokens) for tokens in (1, 64, 65, 8192, 40_000)] == [
        64, 64, 128, 8192, 8192,
    ]  # fmt: skip
