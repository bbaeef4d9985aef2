"""Guards against a plan whose figures are wrong: too many slots and the card runs over, too few
and the model is slower than it need be. What is counted here by hand is not counted by the code.
"""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.vram.buffers import GPU_RULE, HOST_RULE, PromptBuffers
from stratadesk.engine.vram.costs import HIT_RATES, distinct_experts, hit_rate
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.layouts import chunk_limit
from stratadesk.engine.vram.machine_facts import MachineFacts, Rates, System
from stratadesk.engine.vram.plan import VramPlan, make_plan
from stratadesk.engine.vram.plan_json import REQUESTS
from stratadesk.engine.vram.plan_settings import PIN_ALL, HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.regions import PHASES
from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    LayerShape,
    ModelShape,
)
from stratadesk.engine.vram.shape_reader import read_shape
from stratadesk.errors import GgufError, MemoryShortageError, UsageError
from stratadesk.units import GIB, MIB
from tests.gguf_builder import U32, GgufBuilder, scalar, string
from tests.vram.model_headers import Sizes, write_header_only


@pytest.fixture(scope="module")
def shape_35b(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """The 35B-A3B shape with its MTP block, read from a file that is all header."""
    folder = tmp_path_factory.mktemp("headers")
    path = write_header_only(folder / "35b.gguf", Sizes(draft=1, merges=1))
    with GgufFile.open(path) as gguf:
        return read_shape(gguf)


def plan_of(shape: ModelShape, machine: MachineFacts | None = None, **settings: object) -> VramPlan:
    return make_plan(shape, machine or MachineFacts(), PlanSettings(**settings))  # type: ignore[arg-type]


def mib(n_bytes: int) -> int:
    return round(n_bytes / MIB)


def dense_model(width: int = 1024, layers: int = 4, *, tied: bool = False) -> ModelShape:
    layer = LayerShape(
        40 * MIB, 40 * MIB, AttentionShape((1024, 256, 256), 1024, 256, 256), FeedForwardShape(4096)
    )
    head = 80 * MIB
    return ModelShape(
        "dense", "qwen3", width, 50_000, 8192, 64, head, 0 if tied else head, 4096, tied,
        (layer,) * layers,
    )  # fmt: skip


def tiny_moe(kv_layers: int = 13, slots: int = 4, context: int = 32_768) -> ModelShape:
    """2 KiB of f16 keys and values a token and layer; `slots` experts of 1 MiB a layer."""
    feed = FeedForwardShape(0, slots, min(2, slots), 256, MIB, 1_000_000)
    layer = LayerShape(MIB, 500_000, AttentionShape((512, 512, 512), 512, 512, 512), feed)
    return ModelShape(
        "tiny", "qwen3moe", 512, 1000, context, 64, 8 * MIB, 8 * MIB, 4096, False,
        (layer,) * kv_layers,
    )  # fmt: skip


# The budget of the 35B-A3B shape on a card of 8,151 MiB, as DESIGN 2 has it.


def test_the_budget_is_the_one_worked_out_by_hand(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    assert mib(plan.parts.dense) == 1232
    assert plan.parts.kv == 10 * 2 * 2 * 256 * 2 * 32_768 == 640 * MIB
    assert plan.parts.state == 2 * 30 * 4 * (3 * 8192 + 32 * 128 * 128)
    assert mib(plan.parts.state) == 126
    assert plan.parts.scratch + plan.parts.staging == 60 * MIB
    assert plan.geometry.head.size == 2048 // 256 * 176 * 248_320
    assert mib(plan.geometry.head.size) == 333
    left = (8151 - 700 - 590 - 300) * MIB - plan.geometry.rows_start
    assert mib(left) == 4170


def test_the_slots_are_the_ones_worked_out_by_hand(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    assert plan.geometry.slot_bytes == (3 * 2048 * 512 // 256 * 136,) * 40
    assert plan.geometry.row_bytes == 63.75 * MIB
    assert plan.slots == 65 * 40 + 16 == 2616
    assert plan.arena.resident() == (66,) * 16 + (65,) * 24
    assert plan.planner.most_slots == 40 * 256
    assert plan.free_bytes("decoding") >= 590 * MIB


@pytest.mark.parametrize(
    ("chunk", "needs", "loan", "alias"),
    [
        (512, 152, 96, 0),
        (1024, 202, 127, 0),
        (2048, 302, 190, 0),
        (4096, 503, 316, 107),
        # 904 MiB less the head's 333.44 are 358 slots to the byte; a head of 333 would make 359.
        (8192, 904, 568, 358),
    ],
)
def test_each_chunk_lends_the_slots_worked_out_by_hand(
    shape_35b: ModelShape, chunk: int, needs: int, loan: int, alias: int
) -> None:
    plan = plan_of(shape_35b)
    buffers = plan.planner.buffers(chunk)
    assert abs(buffers / MIB - needs) <= 0.5
    assert plan.arena.lent(Layout.LOAN, aligned(buffers)) == loan
    assert plan.arena.lent(Layout.ALIAS, aligned(buffers)) == alias
    assert plan.arena.lent(Layout.FIXED, aligned(buffers)) == 0


def test_a_token_of_the_chunk_takes_about_100_kib_on_a_gpu(shape_35b: ModelShape) -> None:
    buffers = PromptBuffers(shape_35b, GPU_RULE)
    assert buffers.ring_bytes == 64 * 1_671_168
    x, h, gate_up, hidden = 4 * 2048, 2 * 2048, 2 * 8 * 1024, 2 * 8 * 512
    rows, routing = 4 * 8 * 2048, 8 * 32
    assert buffers.activations(512) == 512 * (x + h + gate_up + hidden + rows + routing)
    assert buffers.activations(512) == 512 * 100.25 * 1024


def test_the_host_takes_what_its_forward_takes(shape_35b: ModelShape) -> None:
    """Counted from the code of the forward: every tensor of the routed half-layer, float32."""
    tokens = 64
    x_and_rope = 2048 + 2 * 32
    h, router, routing, out = 2048, 256, 3 * 8, 2048
    entries = 8 * (2048 + 2 * 512 + 512)
    assert PromptBuffers(shape_35b, HOST_RULE)(tokens) == 4 * tokens * (
        x_and_rope + h + router + routing + out + entries
    )


# What a file holds.


def test_a_layer_is_what_its_tensors_say(shape_35b: ModelShape) -> None:
    assert [isinstance(layer.mixer, DeltaNetShape) for layer in shape_35b.layers[:4]] == [
        True, True, True, False,
    ]  # fmt: skip
    assert shape_35b.layers[0].mixer == DeltaNetShape((8192, 4096, 32, 32), 4096, 8192, 4, 32, 128)
    attention = AttentionShape((8192, 512, 512), 4096, 512, 512, gated=True, normed=True)
    assert shape_35b.layers[3].mixer == attention
    feed = FeedForwardShape(512, 256, 8, 512, 1_671_168, 3 * 2048 * 512)
    assert {layer.feed_forward for layer in shape_35b.layers} == {feed}
    assert (shape_35b.vocab, shape_35b.rotated, shape_35b.context) == (248_320, 64, 262_144)


def test_the_draft_block_costs_a_41st_member_of_each_row(shape_35b: ModelShape) -> None:
    without, drafting = plan_of(shape_35b), plan_of(shape_35b, mtp=True, drafts=2)
    assert (without.geometry.layers, drafting.geometry.layers) == (40, 41)
    assert drafting.parts.kv == 11 * 64 * MIB
    join = 2048 * 4096 // 256 * 210
    assert drafting.parts.dense - without.parts.dense > join
    rows = 2 * 4 * 2048
    assert drafting.parts.state == without.parts.state + 2 * rows
    assert drafting.slots < without.slots


@pytest.mark.parametrize(
    ("kv", "bytes_per_token"),
    [(KvFormat.F32, 40_960), (KvFormat.F16, 20_480), (KvFormat.Q8_0, 10_880)],
)
def test_each_kv_format_has_its_size(
    shape_35b: ModelShape, kv: KvFormat, bytes_per_token: int
) -> None:
    plan = plan_of(shape_35b, kv_format=kv, max_context=1024)
    assert plan.parts.kv == 1024 * bytes_per_token


def test_context_is_the_models_own_but_at_most_32768(shape_35b: ModelShape) -> None:
    assert plan_of(shape_35b).context == 32_768
    assert plan_of(replace(shape_35b, context=2048)).context == 2048
    assert plan_of(shape_35b, max_context=40_000).context == 40_000


def test_a_tied_head_is_on_the_card_and_never_lent(tmp_path: Path) -> None:
    sizes = Sizes(tied=True, vocab=4096, merges=1, layers=4)
    with GgufFile.open(write_header_only(tmp_path / "tied.gguf", sizes)) as gguf:
        shape = read_shape(gguf)
    head = 4096 * 2048 // 256 * 176
    assert (shape.tied, shape.head_bytes, shape.embedding_bytes) == (True, head, 0)
    untied = replace(shape, tied=False)
    assert shape.dense_bytes(False) == untied.dense_bytes(False) + head
    plan = plan_of(shape)
    assert plan.geometry.head.size == 0
    assert plan.layouts[Layout.ALIAS].max_chunk == 0
    assert {plan.request(tokens).layout for tokens in REQUESTS} <= {None, Layout.LOAN, Layout.FIXED}
    assert "never lent" in plan.as_text()


@pytest.mark.parametrize("name", ["qwen3moe-iq4_xs", "qwen35moe-ud-q4k", "qwen3-tied-q6_k"])
def test_small_models_are_counted_to_the_last_tensor(data_dir: Path, name: str) -> None:
    with GgufFile.open(data_dir / "models" / f"{name}.gguf") as gguf:
        shape, tensors = read_shape(gguf), gguf.tensors
    experts = sum(moe.experts * moe.expert_bytes for moe in shape.experts(True))
    on_card = shape.dense_bytes(True) + shape.lendable_head
    counted = experts + on_card + shape.embedding_bytes
    exact = sum(info.n_bytes for info in tensors.values())
    assert exact <= counted <= exact + 256 * len(tensors)


def test_formats_may_differ_between_layers() -> None:
    small, large = (
        replace(tiny_moe().layers[0], feed_forward=FeedForwardShape(0, 4, 2, 256, size, 1))
        for size in (MIB, 3 * MIB)
    )
    plan = plan_of(replace(tiny_moe(), layers=(small, large, small)))
    assert plan.geometry.slot_bytes == (MIB, 3 * MIB, MIB)
    assert plan.slots == 12
    assert plan.parts.staging == 3 * MIB


def broken(**numbers: int) -> GgufBuilder:
    builder = GgufBuilder().add("general.architecture", string("qwen3moe"))
    for key, value in numbers.items():
        builder.add(f"qwen3moe.{key}", scalar(U32, value))
    return builder.tensor("token_embd.weight", (8, 3)).tensor("blk.0.attn_norm.weight", (8,))


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        (broken(embedding_length=8), "block_count"),
        (broken(block_count=2**30, embedding_length=8), "block_count is 1073741824"),
        (broken(block_count=1, nextn_predict_layers=1, embedding_length=8), "leaves none"),
        (
            broken(block_count=1, embedding_length=8, expert_used_count=1)
            .tensor("blk.0.ffn_up_exps.weight", (8, 4, 2))
            .tensor("blk.0.ffn_down_exps.weight", (4, 8, 3)),
            "differ in their experts",
        ),
    ],
)
def test_headers_that_contradict_themselves_are_refused(
    tmp_path: Path, builder: GgufBuilder, said: str
) -> None:
    with (
        GgufFile.open(builder.write(tmp_path / "x.gguf")) as gguf,
        pytest.raises(GgufError, match=said),
    ):
        read_shape(gguf)


# Layouts and the choice for a request.


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


# What does not fit.


def test_the_sentence_of_a_shortage_names_the_smallest_changes() -> None:
    shape = tiny_moe()
    needed = plan_of(shape).planner.needed
    plan = plan_of(shape, MachineFacts(free=needed + (590 - 412) * MIB))
    assert [str(problem) for problem in plan.problems] == [
        "412 MiB short: --max-context 16384, or --vram-reserve-mib 178."
    ]
    with pytest.raises(MemoryShortageError, match="412 MiB short"):
        plan.check()


@pytest.mark.parametrize(
    ("settings", "short", "change"),
    [
        ({}, 300, "--kv q8_0"),
        ({"kv_format": KvFormat.F32}, 300, "--kv f16"),
        ({"expert_cache": 40}, 10, "--expert-cache 30"),
        ({"reserve": 100 * MIB}, 100, "--vram-reserve-mib 0"),
    ],
)
def test_each_change_is_offered_where_it_is_enough(
    settings: dict[str, object], short: int, change: str
) -> None:
    shape = tiny_moe()
    needed = plan_of(shape, **settings).planner.needed
    reserve = settings.get("reserve", 590 * MIB)
    assert isinstance(reserve, int)
    plan = plan_of(shape, MachineFacts(free=needed + reserve - short * MIB), **settings)
    assert change in plan.problems[0].sentence


def test_drafting_is_offered_up(shape_35b: ModelShape) -> None:
    needed = plan_of(shape_35b, mtp=True).planner.needed
    plan = plan_of(shape_35b, MachineFacts(free=needed + 570 * MIB), mtp=True)
    assert "--no-mtp" in plan.problems[0].sentence


def test_a_hopeless_card_is_told_so(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(card=2048 * MIB))
    assert "no setting is enough" in plan.problems[0].sentence
    assert "smaller model" in plan.problems[0].remedy
    assert plan.refused
    assert plan_of(shape_35b, MachineFacts(card=2048 * MIB), force=True).refused


def test_force_gives_the_reserve_up_but_not_the_card(shape_35b: ModelShape) -> None:
    machine = MachineFacts(card=3600 * MIB)
    assert plan_of(shape_35b, machine).refused
    forced = plan_of(shape_35b, machine, force=True)
    assert not forced.refused
    assert forced.problems
    assert 0 <= forced.free_bytes("ready") < 590 * MIB
    forced.check()


def test_a_chunk_that_fits_nowhere_is_refused(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, expert_cache=1, prefill=8192)
    assert "--prefill 2304" in plan.problems[0].sentence
    assert plan.refused
    assert not plan_of(shape_35b, expert_cache=1, prefill=2304).refused


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        (dense_model(tied=True), {"alias": HeadAlias.ON}, "never lent"),
        (dense_model(), {"expert_cache": 4}, "no experts to cache"),
        (dense_model(), {"prefill_layout": Layout.LOAN}, "no slots to lend"),
        (tiny_moe(), {"mtp": True}, "no block that drafts"),
        (tiny_moe(), {"drafts": 2}, "--spec"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(
    shape: ModelShape, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        plan_of(shape, **settings)


# The host's side.


@pytest.mark.parametrize(
    ("machine", "budget"),
    [
        (MachineFacts(ram=20 * GIB), 16 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS), 8 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WSL, commit=10 * GIB), 6 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS, pin_probe=3 * GIB), 3 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS, commit=2 * GIB), 0),
    ],
)
def test_pinning_keeps_to_its_budget(machine: MachineFacts, budget: int) -> None:
    assert machine.pin_budget() == budget


def test_pinned_and_pageable_are_all_experts_rows_first(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(system=System.WINDOWS, ram=32 * GIB))
    host = plan.host
    assert host.pinned + host.pageable == 10_240 * 1_671_168
    budget = 32 * GIB * 4 // 10 - 2 * 349_634_560
    assert host.pinned_experts == budget // 1_671_168
    assert host.pinned == host.pinned_experts * 1_671_168
    last_row, layer = divmod(host.pinned_experts, 40)
    assert host.is_pinned(39, last_row - 1)
    assert host.is_pinned(layer - 1, last_row) is (layer > 0)
    assert not host.is_pinned(layer, last_row)


def test_pageable_experts_come_slower(shape_35b: ModelShape) -> None:
    pinned = plan_of(shape_35b, short_read=0).request(512)
    paged = plan_of(shape_35b, short_read=0, pin=0).request(512)
    ratio = paged.reading.link / pinned.reading.link
    assert ratio == pytest.approx(12.5 / 8.2, rel=0.02)


def test_ram_must_hold_the_experts_and_a_tenth_more(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(ram=16 * GIB))
    assert "of RAM short" in plan.problems[0].sentence
    assert plan.refused
    assert not plan_of(shape_35b, MachineFacts(ram=16 * GIB), force=True).refused
    assert plan_of(shape_35b, MachineFacts(ram=19 * GIB)).problems == ()


def test_a_small_page_file_is_warned_of_and_the_setting_named(shape_35b: ModelShape) -> None:
    machine = MachineFacts(system=System.WINDOWS, commit=34 * GIB)
    plan = plan_of(shape_35b, machine)
    assert not plan.refused
    (warning,) = plan.problems
    assert "page file is 2,048 MiB" in warning.sentence
    assert "Virtual memory" in warning.remedy
    assert "page file" in plan.as_text()
    assert plan_of(shape_35b, replace(machine, commit=40 * GIB)).problems == ()


def test_pinning_more_than_can_be_asked_for_is_warned_of(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(system=System.WINDOWS), pin=PIN_ALL)
    assert "--pin-gib all" in plan.problems[0].sentence
    assert plan.host.pageable == 0
    assert not plan.refused


def test_a_context_beyond_the_models_is_warned_of() -> None:
    plan = plan_of(tiny_moe(context=2048), max_context=4096)
    assert "more than the model's 2,048" in plan.problems[0].sentence
    assert not plan.refused


# What is printed.


def test_the_json_has_these_keys_and_adds_up(shape_35b: ModelShape) -> None:
    found = plan_of(shape_35b).as_json()
    assert list(found) == [
        "card", "regions", "rows", "slots_total", "slots_per_layer", "slot_bytes_per_layer",
        "head_bytes", "tiers", "layouts", "free_mib_by_phase", "reserve_mib", "requests",
        "problems",
    ]  # fmt: skip
    assert found["rows"] == 66
    assert sum(found["slots_per_layer"]) == found["slots_total"]  # type: ignore[call-overload]
    assert list(found["free_mib_by_phase"]) == list(PHASES)  # type: ignore[call-overload]
    requests = found["requests"]
    assert isinstance(requests, list)
    assert [request["tokens"] for request in requests] == list(REQUESTS)
    for request in requests:
        assert list(request) == [
            "tokens", "path", "layout", "chunk", "slots_lent", "head", "seconds", "terms", "why",
        ]  # fmt: skip
        terms = request["terms"]
        total = terms["reading"] + terms["refill"] + terms["head_return"]
        assert request["seconds"] == pytest.approx(total, abs=3e-6)


def test_the_table_adds_up_to_the_card_and_says_shares_in_bytes(shape_35b: ModelShape) -> None:
    text = plan_of(shape_35b).as_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "2,616 of 10,240 experts (26%), 65 to 66 a layer" in text
    rows = text.split("\n\n")[1].splitlines()[1:]
    figures = [float(re.split(r" {2,}", row.strip())[1].replace(",", "")) for row in rows]
    assert figures[-1] == 8151
    assert abs(sum(figures[:-1]) - 8151) <= 3
    bar = next(line for line in text.splitlines() if line.startswith("  ["))
    assert all(glyph in bar for glyph in "oDKsHE.")


def test_free_memory_given_replaces_both_guesses(shape_35b: ModelShape) -> None:
    assert plan_of(shape_35b, MachineFacts(free=7151 * MIB)).slots == 2616
    text = plan_of(shape_35b, MachineFacts(free=7151 * MIB)).as_text()
    assert "given by --free-mib" in text


def test_escape_sequences_in_a_models_name_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in plan_of(replace(tiny_moe(), name="a\x1b[31mb")).as_text()


def test_planning_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "import stratadesk.engine.vram.plan, stratadesk.engine.vram.shape_reader\n"
        "import stratadesk.engine.vram.plan_text, stratadesk.engine.vram.plan_json\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - {'stratadesk'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


# The tables of docs/DETAILS.md, recomputed from the sizes that stand above them.

DETAILS = Path(__file__).parents[2] / "docs" / "DETAILS.md"


def table_below(heading: str, first_column: str) -> list[list[str]]:
    """Cells of the table that begins with `first_column`, in the section with this heading."""
    section = DETAILS.read_text("utf-8").partition(f"### {heading}\n")[2].partition("\n#")[0]
    lines = section.partition(f"| {first_column} |")[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace(",", "") for cell in line.strip("|").split("|")])
    assert rows, f"no table with a column {first_column!r} below {heading!r}"
    return rows


def test_the_parts_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    by_hand = [
        plan.parts.dense / MIB,
        10 * 2 * 2 * 256 * 2 * 32_768 / MIB,
        2 * 30 * 4 * (3 * 8192 + 32 * 128 * 128) / MIB,
        60,
        248_320 * 2048 / 256 * 176 / MIB,
    ]
    written = [float(row[2]) for row in table_below("By hand", "Part")]
    assert written == pytest.approx([*by_hand, sum(by_hand)], abs=0.051)
    assert written[-1] == pytest.approx(plan.geometry.rows_start / MIB, abs=0.051)


def test_the_cards_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    slot, head = 1_671_168 / MIB, 248_320 * 2048 / 256 * 176 / MIB
    rows = table_below("By hand", "Card")
    assert [row[0] for row in rows] == ["6144", "8151", "12282", "16376"]
    for row in rows:
        figures = [float(cell.removesuffix(" %")) for cell in row]
        plan = plan_of(shape_35b, MachineFacts(card=int(figures[0]) * MIB))
        parts = plan.parts.dense / MIB + 640 + 125.625 + 60 + head
        left = figures[0] - 700 - 300 - 590 - parts
        small, large = (102 + chunk * 100.25 / 1024 for chunk in (2048, 8192))
        slots = left // slot
        by_hand = [left, slots, 100 * slots / 10_240, (left - large) // slot]
        lent = [-(-max(0, need) // slot) for need in (small, small - head, large, large - head)]
        assert figures[1:5] == pytest.approx(by_hand, abs=0.51)
        assert figures[5:] == lent
        assert figures[2] == plan.slots == slots
        assert figures[4] == plan.layouts[Layout.FIXED].slots_total
        assert figures[7:] == [
            plan.layouts[name].slots_lent for name in (Layout.LOAN, Layout.ALIAS)
        ]


def test_the_ram_in_the_documents_is_the_plans(shape_35b: ModelShape) -> None:
    slot, total, copies = 1_671_168, 10_240 * 1_671_168, 2 * 349_634_560
    rows = table_below("RAM", "RAM")
    assert [row[0] for row in rows] == ["16", "32", "64"]
    for row in rows:
        ram = int(row[0]) * GIB
        written = [float(cell) for cell in row[1:7]]
        by_hand: list[float] = []
        for system, share in ((System.LINUX, 0.8), (System.WINDOWS, 0.4)):
            pinned = min(total, (share * ram - copies) // slot * slot)
            by_hand += [share * ram / GIB, pinned / GIB, (total - pinned) / GIB]
            plan = plan_of(shape_35b, MachineFacts(ram=ram, system=system))
            assert (plan.host.pinned, plan.host.pageable) == (pinned, total - pinned)
            assert plan.refused is (1.1 * (total + copies) > ram) is (row[7] == "no")
        assert written == pytest.approx(by_hand, abs=0.0051)


def test_the_seconds_in_the_documents_are_the_plans(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b)
    rows = table_below("Seconds", "Fresh tokens")
    assert [int(row[0]) for row in rows] == list(REQUESTS)
    for row in rows:
        request = plan.request(int(row[0]))
        assert row[1] == (request.layout or request.path)
        assert [int(row[2]), int(row[3])] == [request.chunk, request.slots_lent]
        assert float(row[4]) == pytest.approx(request.seconds, abs=0.0051)
