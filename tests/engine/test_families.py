"""Guards against features of a file that are ignored, and headers read another way than meant.

Everything a family takes from a file is asked for through the tensor table, so a table without
data and a header of a few keys show what it would do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stratadesk.engine.architectures import SUPPORTED, family
from stratadesk.engine.architectures.attention import Attention, AttentionForm, HeadNorm
from stratadesk.engine.architectures.draft import DraftHead
from stratadesk.engine.architectures.glm4moe import Glm4Moe
from stratadesk.engine.architectures.qwen3next import GroupedDeltaNet
from stratadesk.engine.architectures.routers import expert_counts, gated_router, softmax_router
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.gguf_metadata import MetadataGetters
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.windows import is_windowed, window_of
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.kernels.expert_form import ExpertForm
from stratadesk.kernels.router_spec import RouterScore

WIDTH, HEADS, SIZE = 32, 4, 8


class Header(MetadataGetters):
    """Metadata under the prefix "test."."""

    label, architecture = "test.gguf", "test"

    def __init__(self, **values: Any) -> None:
        self.metadata = {f"test.{key.replace('__', '.')}": value for key, value in values.items()}


@dataclass
class Names:
    """A loader whose weights are the names of their tensors."""

    experts: list[Sequence[str]] = field(default_factory=list)

    def load(self, name: str) -> str:
        return name

    def vector(self, name: str) -> str:
        return name

    def expert_layer(self, parts: Sequence[str], form: ExpertForm) -> str:
        self.experts.append(parts)
        return "experts"

    def head_rows(self, *_: Any, **__: Any) -> str:
        return "rows"


def header(**values: Any) -> Hyperparameters:
    return Hyperparameters(Header(**values))


def table(**shapes: tuple[int, ...]) -> TensorTable:
    tensors = {
        name.replace("__", "."): SimpleNamespace(shape=shape) for name, shape in shapes.items()
    }
    return TensorTable(tensors, Names())


ATTENTION = {
    "attn_q__weight": (HEADS * SIZE, WIDTH),
    "attn_k__weight": (HEADS * SIZE, WIDTH),
    "attn_v__weight": (HEADS * SIZE, WIDTH),
    "attn_output__weight": (WIDTH, HEADS * SIZE),
}
PLAIN = AttentionForm(norm=HeadNorm.NONE)


def attention(found: TensorTable, form: AttentionForm = PLAIN, **values: Any) -> Attention:
    numbers = header(attention__head_count=HEADS, **values)
    return Attention(numbers, found, "", WIDTH, SIZE, 1e-6, form)


def test_every_supported_architecture_has_its_module() -> None:
    for name in SUPPORTED:
        assert callable(family(name))
    with pytest.raises(UnsupportedModelError, match=r"'mamba' is not supported; .*gpt-oss"):
        family("mamba")


def test_biases_are_added_where_the_file_has_them() -> None:
    rows = (HEADS * SIZE,)
    found = table(**ATTENTION, attn_q__bias=rows, attn_v__bias=rows)
    made = attention(found)
    assert (made.query.bias, made.value.bias) == ("attn_q.bias", "attn_v.bias")
    assert made.key.bias is made.output.bias is None
    found.finish()


def test_a_bias_of_the_wrong_size_is_an_error() -> None:
    with pytest.raises(GgufError, match=r"attn_k.bias has shape \[31\], wanted \[32\]"):
        attention(table(**ATTENTION, attn_k__bias=(31,)))


def test_a_norm_over_all_heads_has_their_width() -> None:
    norms = {"attn_q_norm__weight": (HEADS * SIZE,), "attn_k_norm__weight": (HEADS * SIZE,)}
    made = attention(table(**ATTENTION, **norms), AttentionForm(norm=HeadNorm.ALL))
    assert made.query_norm == "attn_q_norm.weight"
    with pytest.raises(GgufError, match="wanted"):
        attention(table(**ATTENTION, **norms), AttentionForm(norm=HeadNorm.EACH))


@pytest.mark.parametrize(
    ("shapes", "values", "why"),
    [
        ({"attn_qkv__weight": (96, WIDTH)}, {}, "one matrix for queries, keys and values"),
        ({}, {"attention__clamp_kqv": 8.0}, "clamp_kqv"),
        ({}, {"attention__value_length": 2 * SIZE}, "needs both equal"),
    ],
)
def test_attention_refuses_what_it_does_not_compute(
    shapes: dict[str, tuple[int, ...]], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=why):
        attention(table(**ATTENTION, **shapes), **values)
    attention(table(**ATTENTION), attention__clamp_kqv=0.0)


@pytest.mark.parametrize(
    ("pattern", "windowed"),
    [
        (None, [True, False, True, False]),
        (1, [False] * 4),
        (3, [True, True, False, True]),
        (np.array([False, True, True, False]), [False, True, True, False]),
    ],
)
def test_which_layers_have_a_window(pattern: Any, windowed: list[bool]) -> None:
    values = {} if pattern is None else {"attention__sliding_window_pattern": pattern}
    assert [is_windowed(header(**values), i) for i in range(4)] == windowed
    told = header(attention__sliding_window=16, **values)
    assert [window_of(told, i) for i in range(4)] == [16 * is_set for is_set in windowed]
    assert [window_of(header(**values), i) for i in range(4)] == [0] * 4


def test_a_window_pattern_that_is_too_short_is_an_error() -> None:
    numbers = header(attention__sliding_window_pattern=np.array([True, False]))
    with pytest.raises(GgufError, match="has 2 entries, layer 2 is not among them"):
        is_windowed(numbers, 2)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, (RouterScore.SIGMOID, False, 1.0)),
        ({"expert_gating_func": 0}, (RouterScore.SIGMOID, False, 1.0)),
        ({"expert_gating_func": 1, "expert_weights_norm": True}, (RouterScore.SOFTMAX, True, 1.0)),
        ({"expert_gating_func": 2, "expert_weights_scale": 2.5}, (RouterScore.SIGMOID, False, 2.5)),
        ({"expert_weights_scale": 0.0}, (RouterScore.SIGMOID, False, 1.0)),
    ],
)
def test_how_a_router_is_read(
    values: dict[str, Any], wanted: tuple[RouterScore, bool, float]
) -> None:
    numbers = header(expert_count=8, expert_used_count=2, **values)
    spec = gated_router(numbers, table(exp_probs_b__bias=(8,)), "", RouterScore.SIGMOID)
    assert (spec.score, spec.renormalise, spec.scale) == wanted
    assert (spec.used, spec.selection_bias) == (2, "exp_probs_b.bias")
    assert gated_router(numbers, table(), "", RouterScore.SIGMOID).selection_bias is None


def test_routers_of_other_kinds_are_refused() -> None:
    counts = {"expert_count": 8, "expert_used_count": 2}
    with pytest.raises(UnsupportedModelError, match="expert_gating_func is 3"):
        gated_router(header(**counts, expert_gating_func=3), table(), "", RouterScore.SIGMOID)
    with pytest.raises(UnsupportedModelError, match="expert_group_count is 4"):
        softmax_router(header(**counts, expert_group_count=4), renormalise=True)
    with pytest.raises(GgufError, match="9 of 8 experts"):
        expert_counts(header(expert_count=8, expert_used_count=9))
    assert expert_counts(header(**counts, expert_group_count=1)) == (8, 2)


def test_an_old_delta_net_with_one_matrix_is_refused() -> None:
    sizes = {"conv_kernel": 4, "state_size": 8, "group_count": 2, "time_step_rank": 4}
    numbers = header(**{f"ssm__{key}": value for key, value in sizes.items()}, ssm__inner_size=32)
    with pytest.raises(UnsupportedModelError, match=r"ssm_in\.weight"):
        GroupedDeltaNet(numbers, table(ssm_in__weight=(128, WIDTH)), "", WIDTH, 1e-6)


def test_a_vision_model_of_glm4moe_is_refused() -> None:
    sections = header(rope__dimension_sections=np.array([8, 12, 12, 0], np.int32))
    with pytest.raises(UnsupportedModelError, match="vision model"):
        Glm4Moe(sections, table(), 100)


def test_two_draft_blocks_are_refused_only_where_they_are_wanted() -> None:
    values = {
        "embedding_length": WIDTH,
        "attention__head_count": HEADS,
        "attention__layer_norm_rms_epsilon": 1e-6,
        "block_count": 3,
        "nextn_predict_layers": 2,
        "feed_forward_length": 64,
        "leading_dense_block_count": 1,
    }
    trunk = {
        "token_embd__weight": (100, WIDTH),
        "output_norm__weight": (WIDTH,),
        "blk__0__attn_norm__weight": (WIDTH,),
        "blk__0__post_attention_norm__weight": (WIDTH,),
        "blk__0__ffn_gate__weight": (64, WIDTH),
        "blk__0__ffn_up__weight": (64, WIDTH),
        "blk__0__ffn_down__weight": (WIDTH, 64),
        **{f"blk__0__{name}": shape for name, shape in ATTENTION.items()},
        "blk__2__nextn__enorm__weight": (WIDTH,),
    }
    without = table(**trunk)
    assert Glm4Moe(header(**values), without, 100).draft is None
    without.finish()
    with pytest.raises(UnsupportedModelError, match="nextn_predict_layers is 2"):
        Glm4Moe(header(**values), table(**trunk), 100, mtp=True)


def test_a_draft_head_takes_its_own_embedding_and_head_where_there_are_any() -> None:
    shared = {
        "nextn__enorm__weight": (WIDTH,),
        "nextn__hnorm__weight": (WIDTH,),
        "nextn__eh_proj__weight": (WIDTH, 2 * WIDTH),
    }
    own = {
        "nextn__shared_head_norm__weight": (WIDTH,),
        "nextn__embed_tokens__weight": (100, WIDTH),
        "nextn__shared_head_head__weight": (100, WIDTH),
    }
    trunk: Any = SimpleNamespace(
        width=WIDTH, vocab_size=100, embedding="embedding", head="head", output_norm="norm"
    )
    layer: Any = None
    plain = DraftHead(trunk, table(**shared), "", layer)
    assert (plain.embedding, plain.head, plain.norm) == ("embedding", "head", "norm")
    found = table(**shared, **own)
    made = DraftHead(trunk, found, "", layer)
    assert (made.embedding, made.head) == (
        "nextn.embed_tokens.weight",
        "nextn.shared_head_head.weight",
    )
    assert made.norm == "nextn.shared_head_norm.weight"
    found.finish()
