"""Guards against a plan whose figures are wrong: too many slots and the card runs over, too few
and the model is slower than it need be. What is counted here by hand is not counted by the code.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.vram.buffers import GPU_RULE, HOST_RULE, BufferRule, PromptBuffers
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan import make_plan
from stratadesk.engine.vram.plan_json import REQUESTS
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    ModelShape,
)
from stratadesk.engine.vram.shape_reader import read_shape
from stratadesk.errors import GgufError, MemoryShortageError, UsageError
from stratadesk.units import MIB
from tests.gguf_builder import U32, GgufBuilder, scalar, string
from tests.vram.model_headers import Sizes, write_header_only
from tests.vram.plan_models import dense_model, mib, plan_of, tiny_moe

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
    """Counted from the code of the forward: every tensor beside routed experts, float32."""
    tokens = 64
    x_and_rope = 2048 + 2 * 32
    h, shared, gate, router, routing, out = 2048, 2048, 1, 256, 3 * 8, 2048
    entries = 8 * (2048 + 2 * 512 + 512)
    assert PromptBuffers(shape_35b, HOST_RULE)(tokens) == 4 * tokens * (
        x_and_rope + h + shared + gate + router + routing + out + entries
    )


# What a file holds.


def test_a_layer_is_what_its_tensors_say(shape_35b: ModelShape) -> None:
    assert [isinstance(layer.mixer, DeltaNetShape) for layer in shape_35b.layers[:4]] == [
        True, True, True, False,
    ]  # fmt: skip
    assert shape_35b.layers[0].mixer == DeltaNetShape((8192, 4096, 32, 32), 4096, 8192, 4, 32, 128)
    attention = AttentionShape(
        (8192, 512, 512), 4096, 512, 512, gated=True, normed=True, kv_heads=2
    )
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


@pytest.mark.parametrize("rule", [GPU_RULE, HOST_RULE])
def test_where_figures_are_assumed_no_program_is_to_be_closed(
    rule: BufferRule, shape_35b: ModelShape
) -> None:
    """A newcomer was told to free 1,598 MiB of other programs' VRAM on a card of 2 MiB."""
    plan = make_plan(shape_35b, MachineFacts(card=2 * MIB), PlanSettings(), rule)
    assert plan.problems[0].remedy == (
        "700 MiB for other programs and 300 MiB for a CUDA context are assumed, and 590 MiB stay "
        "free (--vram-reserve-mib): say what is free with --free-mib, name a larger card with "
        "--vram-mib, or choose a smaller model."
    )


def test_what_is_free_of_a_card_of_others_is_made_more_by_closing_them(
    shape_35b: ModelShape,
) -> None:
    machine, settings = MachineFacts(free=8 * MIB), PlanSettings(reserve=7 * MIB)
    real = make_plan(shape_35b, machine, settings)
    assert real.problems[0].remedy.startswith("Free VRAM of other programs")
    simulated = make_plan(shape_35b, machine, settings, HOST_RULE)
    assert simulated.problems[0].remedy == (
        "The card is simulated: give it more with --free-mib or --vram-mib, keep less than 7 MiB "
        "free with --vram-reserve-mib, or choose a smaller model."
    )
    forced = make_plan(shape_35b, machine, PlanSettings(reserve=0, force=True), HOST_RULE)
    with pytest.raises(MemoryShortageError, match="The card is simulated") as caught:
        forced.check()
    assert "--vram-reserve-mib" not in caught.value.remedy


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
