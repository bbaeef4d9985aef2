"""Guards against a deepseek2 or qwen4exp file that is read another way than it is meant.

What golden files do not show: the forms of YaRN, old key names, and headers that contradict
themselves.
"""

import math
import re
from typing import Any

import numpy as np
import pytest

from stratadesk.engine.architectures.block_attention import Indexer
from stratadesk.engine.architectures.deepseek2 import Deepseek2
from stratadesk.engine.architectures.latent_attention import (
    LatentAttention,
    rope_magnitude,
    score_scale,
)
from stratadesk.engine.architectures.ngram_embedding import NgramEmbedding, ngram_hash
from stratadesk.engine.architectures.qwen4exp import Qwen4Exp
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.rope import rope_frequencies
from stratadesk.errors import GgufError, UnsupportedModelError
from stratadesk.kernels.router_spec import RouterScore
from tests.engine.test_families import header, table

WIDTH, HEADS, PLAIN, ROTATED, LATENT, VALUE, RANK = 32, 4, 24, 8, 16, 12, 20
MLA = {
    "attention__head_count": HEADS,
    "attention__kv_lora_rank": LATENT,
    "attention__key_length": LATENT + ROTATED,
    "attention__value_length": LATENT,
    "attention__key_length_mla": PLAIN + ROTATED,
    "attention__value_length_mla": VALUE,
    "rope__dimension_count": ROTATED,
}
COMMON = {
    "attn_kv_a_mqa__weight": (LATENT + ROTATED, WIDTH),
    "attn_kv_a_norm__weight": (LATENT,),
    "attn_output__weight": (WIDTH, HEADS * VALUE),
}
DIRECT = {"attn_q__weight": (HEADS * (PLAIN + ROTATED), WIDTH)}
LOW_RANK = {
    "attn_q_a__weight": (RANK, WIDTH),
    "attn_q_a_norm__weight": (RANK,),
    "attn_q_b__weight": (HEADS * (PLAIN + ROTATED), RANK),
}
SPLIT = {
    "attn_k_b__weight": (HEADS, LATENT, PLAIN),
    "attn_v_b__weight": (HEADS, VALUE, LATENT),
}
JOINED = {"attn_kv_b__weight": (HEADS * (PLAIN + VALUE), LATENT)}


def latent(found: TensorTable, **values: Any) -> LatentAttention:
    return LatentAttention(header(**(MLA | values)), found, "", WIDTH, 1e-6)


@pytest.mark.parametrize("decompression", [SPLIT, JOINED], ids=["split", "joined"])
@pytest.mark.parametrize("query", [DIRECT, LOW_RANK], ids=["direct", "low rank"])
def test_every_stored_form_is_taken_whole(
    query: dict[str, tuple[int, ...]], decompression: dict[str, tuple[int, ...]]
) -> None:
    found = table(**COMMON, **query, **decompression)
    made = latent(found, attention__q_lora_rank=RANK)
    assert (made.plain, made.row, made.latent) == (PLAIN, LATENT + ROTATED, LATENT)
    found.finish()


def test_old_files_name_the_sizes_of_a_head_without_mla() -> None:
    old = {key: value for key, value in MLA.items() if not key.endswith("_mla")}
    old |= {"attention__key_length": PLAIN + ROTATED, "attention__value_length": VALUE}
    found = table(**COMMON, **DIRECT, **JOINED)
    made = LatentAttention(header(**old), found, "", WIDTH, 1e-6)
    assert (made.plain, made.row) == (PLAIN, LATENT + ROTATED)


def test_heads_that_rotate_as_a_whole_are_an_error() -> None:
    with pytest.raises(GgufError, match="dimension_count is 32, of heads with 32 values"):
        latent(table(**COMMON, **DIRECT, **SPLIT), rope__dimension_count=PLAIN + ROTATED)


def test_the_scale_under_yarn() -> None:
    size, yarn = 48, {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0}
    plain = header(rope__scaling__factor=40.0)
    assert (score_scale(plain, size), rope_magnitude(plain)) == (1 / math.sqrt(size), 1.0)

    told = header(**yarn, rope__scaling__yarn_log_multiplier=0.0707)
    grown = 1 + 0.1 * 0.707 * math.log(40)
    assert score_scale(told, size) == pytest.approx(grown**2 / math.sqrt(size), rel=1e-12)
    assert rope_magnitude(told) == 1.0

    untold, grown = header(**yarn), 1 + 0.1 * math.log(40)
    assert score_scale(untold, size) == pytest.approx(grown**2 / math.sqrt(size), rel=1e-12)
    assert rope_magnitude(untold) == pytest.approx(grown, rel=1e-12)


@pytest.mark.parametrize(
    ("blocks", "drafts", "vocabulary", "score"),
    [
        (48, 1, 154_880, RouterScore.SIGMOID),
        (47, 0, 154_880, RouterScore.SIGMOID),
        (47, 1, 154_880, RouterScore.SOFTMAX),
        (47, 0, 128_256, RouterScore.SOFTMAX),
    ],
)
def test_the_first_files_of_glm_flash_are_known_by_their_size(
    blocks: int, drafts: int, vocabulary: int, score: RouterScore
) -> None:
    numbers = header(block_count=blocks, nextn_predict_layers=drafts)
    model = Deepseek2.__new__(Deepseek2)
    model.vocab_size = vocabulary
    assert model._usual_score(numbers) is score


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rope.scale_linear", 4.0),
        ("rope.scaling.attn_factor", 0.9),
        ("rope.scaling.yarn_attn_factor", 0.5),
        ("rope.scaling.yarn_ext_factor", 0.0),
        ("rope.scaling.yarn_beta_fast", 16.0),
        ("rope.scaling.yarn_beta_slow", 2.0),
    ],
)
def test_scaling_of_other_kinds_is_refused(name: str, value: float) -> None:
    with pytest.raises(UnsupportedModelError, match=re.escape(f"test.{name} is {value}; this")):
        rope_frequencies(header(**{name: value}), 64)
    for usual in (1.0, 32.0):
        if name.endswith("fast") == (usual == 32.0):
            rope_frequencies(header(**{name: usual}), 64)


def test_a_base_that_turns_nothing_is_an_error() -> None:
    """Its logarithm, by which YaRN divides, is zero."""
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 64}
    with pytest.raises(GgufError, match=r"freq_base is 1\.0, not a number above 1"):
        rope_frequencies(header(**yarn, rope__freq_base=1.0), 64)


NGRAMS = {
    "ple__ngram_size": 3,
    "ple__heads_per_ngram": 2,
    "ple__conv_kernel": 4,
    "ple__layer_multipliers": np.array([11, 2**63 + 1, 7], np.uint64),
    "ple__head_offsets": np.array([0, 50, 100, 150], np.uint64),
    "ple__head_vocab_sizes": np.array([50, 50, 50, 47], np.uint64),
    "ple__eos_token_id": 3,
    "embedding_length_per_layer_input": WIDTH // 4,
}


def test_how_ngrams_are_hashed_is_read() -> None:
    facts = ngram_hash(header(**NGRAMS))
    assert (facts.length, facts.heads, facts.end_token) == (3, 4, 3)
    assert facts.multipliers.tolist() == [11, 2**63 + 1, 7]
    signed = np.array([11, -(2**63) + 1, 7], np.int64)
    again = ngram_hash(header(**(NGRAMS | {"ple__layer_multipliers": signed})))
    assert again.multipliers.tolist() == facts.multipliers.tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ple__ngram_size": 1},
        {"ple__ngram_size": 4},
        {"ple__heads_per_ngram": 3},
        {"ple__head_vocab_sizes": np.array([50, 0, 50, 47], np.uint64)},
        {"ple__head_offsets": np.array([0, -1, 100, 150], np.int64)},
        {"ple__head_offsets": np.array([0, 50], np.uint64)},
    ],
)
def test_numbers_of_ngrams_that_contradict_each_other_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(GgufError):
        ngram_hash(header(**(NGRAMS | wrong)))


@pytest.mark.parametrize(("rows", "fits"), [(197, True), (200, True), (196, False), (2**31, False)])
def test_no_hash_leaves_the_table(rows: int, fits: bool) -> None:
    wide = 2 * WIDTH
    shapes = {f"ple_norm_{part}__weight": (wide,) for part in ("key", "query", "conv")}
    found = table(
        per_layer_token_embd__weight=(rows, WIDTH // 4),
        ple_key__weight=(wide, WIDTH),
        ple_value__weight=(WIDTH, WIDTH),
        ple_conv1d__weight=(wide, 4),
        **shapes,
    )
    if fits:
        NgramEmbedding(header(**NGRAMS), found, "", WIDTH, 2, 1e-6)
        found.finish()
    else:
        with pytest.raises(GgufError, match=f"has {rows} rows; n-grams are hashed to 197"):
            NgramEmbedding(header(**NGRAMS), found, "", WIDTH, 2, 1e-6)


QWEN4 = {
    "embedding_length": WIDTH,
    "hyper_connection__count": 2,
    "attention__layer_norm_rms_epsilon": 1e-6,
    "attention__key_length": 8,
    "attention__head_count": 4,
    "block_count": 4,
}


@pytest.mark.parametrize(
    ("values", "error", "why"),
    [
        ({"nextn_predict_layers": 1}, UnsupportedModelError, "knows no draft block"),
        ({"ple__layers": np.array([0, 1])}, UnsupportedModelError, "lists 2 layers"),
        ({"ple__layers": np.array([3])}, GgufError, "names no delta-net layer"),
        ({"ple__layers": np.array([4])}, GgufError, "names no delta-net layer"),
        ({"attention__compress_ratios": np.array([4, 0, 0, 4])}, GgufError, "does not fit layer 0"),
        ({}, GgufError, "does not fit layer 0"),
    ],
)
def test_what_qwen4exp_does_not_compute_is_refused(
    values: dict[str, Any], error: type[Exception], why: str
) -> None:
    found = table(token_embd__weight=(100, WIDTH))
    with pytest.raises(error, match=why):
        Qwen4Exp(header(**(QWEN4 | values)), found, 100)


def test_an_indexer_narrower_than_what_rotates_is_an_error() -> None:
    numbers = header(
        attention__indexer__head_count=2,
        attention__indexer__key_length=6,
        attention__indexer__top_k=8,
    )
    rope = (np.ones(4), 1.0)
    with pytest.raises(GgufError, match="fewer than the 8 values that rotate"):
        Indexer(numbers, table(), "", WIDTH, 1e-6, 4, rope)
