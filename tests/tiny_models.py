"""Writes seeded models of a few kilobytes, one of every family, that load and compute.

A family is asked itself which tensors it wants, so only hyperparameters stand here. Weights are
random; all their formats have blocks of 32 values that begin with a half-precision scale.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.gguf_metadata import MetadataGetters
from stratadesk.engine.hyperparameters import Hyperparameters
from tests.gguf_builder import (
    BOOL,
    F32,
    F32_TYPE,
    I32,
    U32,
    U64,
    GgufBuilder,
    numbers,
    scalar,
    string,
    strings,
)

WIDTH, HEAD, VOCABULARY = 32, 16, 260
F16_TYPE, Q4_0_TYPE, Q5_0_TYPE, Q8_0_TYPE, IQ4_NL_TYPE = 1, 2, 6, 8, 20
BLOCK_BYTES = {Q4_0_TYPE: 18, Q5_0_TYPE: 22, Q8_0_TYPE: 34, IQ4_NL_TYPE: 18}
TYPES = (Q8_0_TYPE, Q4_0_TYPE, F16_TYPE, IQ4_NL_TYPE, Q5_0_TYPE, F32_TYPE)
SCALE = 0.01

Values = Mapping[str, Any]

_ATTENTION: Values = {
    "context_length": 64,
    "embedding_length": WIDTH,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": 8,
}
_EXPERTS: Values = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
}
_SHARED: Values = {"expert_shared_feed_forward_length": 32}
_GATED: Values = {
    "leading_dense_block_count": 1,
    "feed_forward_length": 64,
    "expert_shared_count": 1,
    "expert_weights_scale": 1.5,
    "expert_weights_norm": True,
    "expert_gating_func": 2,
}
_DELTA: Values = {
    "rope.dimension_sections": [2, 1, 1, 0],
    "full_attention_interval": 2,
    "ssm.conv_kernel": 4,
    "ssm.state_size": HEAD,
    "ssm.group_count": 1,
    "ssm.time_step_rank": 2,
    "ssm.inner_size": 2 * HEAD,
}
_YARN: Values = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
}
_DRAFTS: Values = {"nextn_predict_layers": 1}

FAMILIES: Mapping[str, Values] = {
    "qwen3": {**_ATTENTION, "block_count": 2, "feed_forward_length": 64},
    "qwen3moe": {**_ATTENTION, **_EXPERTS, "block_count": 2},
    "olmoe": {**_ATTENTION, **_EXPERTS, "block_count": 2, "feed_forward_length": 32},
    "glm4moe": {**_ATTENTION, **_EXPERTS, **_GATED, **_DRAFTS, "block_count": 3},
    "gpt-oss": {
        **_ATTENTION,
        **_EXPERTS,
        **_YARN,
        "block_count": 2,
        "attention.sliding_window": 2,
    },
    "deepseek2": {
        **_ATTENTION,
        **_EXPERTS,
        **_GATED,
        **_YARN,
        "block_count": 2,
        "attention.q_lora_rank": 32,
        "attention.kv_lora_rank": 32,
        "attention.key_length_mla": 40,
        "attention.value_length_mla": 32,
        "rope.scaling.yarn_log_multiplier": 0.0707,
    },
    "qwen35moe": {
        **_ATTENTION,
        **_EXPERTS,
        **_SHARED,
        **_DELTA,
        **_DRAFTS,
        "block_count": 3,
        "attention.recurrent_layers": [True, False, False],
    },
    "qwen3next": {**_ATTENTION, **_EXPERTS, **_SHARED, **_DELTA, "block_count": 2},
    "qwen4exp": {
        **_ATTENTION,
        **_EXPERTS,
        **_SHARED,
        **_DELTA,
        "block_count": 2,
        "hyper_connection.count": 2,
        "hyper_connection.low_rank": 32,
        "attention.indexer.head_count": 2,
        "attention.indexer.key_length": 16,
        "attention.indexer.top_k": 2,
        "attention.compress_ratios": [0, 2],
        "ple.layers": [0],
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": 2,
        "ple.conv_kernel": 4,
        "ple.eos_token_id": 256,
        "embedding_length_per_layer_input": 8,
        "ple.layer_multipliers": [2**60 + 1, 2**50 + 3, 2**40 + 5],
        "ple.head_offsets": [0, 10, 20, 30],
        "ple.head_vocab_sizes": [10, 10, 10, 7],
    },
}
"""Hyperparameters by `general.architecture`."""

_HELD = ("output.weight", "exp_probs_b.bias", "shared_head_norm.weight", "attn_q.bias")
"""Tensors that every family may leave out and that these models hold."""

_HASHED_ROWS = 40


class _Header(MetadataGetters):
    """Hyperparameters as if they were read from a file."""

    label = "tiny.gguf"

    def __init__(self, architecture: str, values: Values) -> None:
        self.architecture = architecture
        self.metadata = {
            f"{architecture}.{key}": np.array(value) if isinstance(value, list) else value
            for key, value in values.items()
        }


class _Loader:
    """Loads nothing; a family only keeps what it gets."""

    def load(self, name: str) -> str:
        return name

    vector = load

    def expert_layer(self, *_: Any) -> str:
        return "experts"

    def head_rows(self, *_: Any, **__: Any) -> str:
        return "rows"


class _Wishes(TensorTable):
    """Has what it is asked for, and notes name, shape, and whether it must be in float32."""

    def __init__(self) -> None:
        super().__init__({}, _Loader())
        self.matrices: dict[str, tuple[int, ...]] = {}
        self.vectors: dict[str, tuple[int, ...]] = {}

    def has(self, name: str) -> bool:
        return name.endswith(_HELD)

    def shape(self, name: str) -> tuple[int, ...]:
        return (_HASHED_ROWS,)

    def weight(self, name: str, *shape: int) -> str:
        (self.matrices if len(shape) > 1 else self.vectors)[name] = shape
        return name

    def vector(self, name: str, *shape: int) -> str:
        self.vectors[name] = shape
        return name


def tiny_model(architecture: str, values: Values | None = None) -> GgufBuilder:
    """A sound model of a family; `values` stand in for its hyperparameters in `FAMILIES`."""
    values = FAMILIES[architecture] if values is None else values
    builder = GgufBuilder().add("general.architecture", string(architecture))
    for key, value in values.items():
        builder.add(f"{architecture}.{key}", encoded(value))
    _add_tokenizer(builder)
    wishes = _Wishes()
    header = Hyperparameters(_Header(architecture, values))
    drafts = "nextn_predict_layers" in values
    family(architecture)(header, wishes, VOCABULARY, mtp=drafts)
    rng = np.random.default_rng(7)
    for number, (name, shape) in enumerate(wishes.matrices.items()):
        kind = TYPES[number % len(TYPES)] if shape[-1] % 32 == 0 else F16_TYPE
        builder.tensor(name, shape[::-1], kind, random_data(rng, shape, kind))
    for name, shape in wishes.vectors.items():
        builder.tensor(name, shape[::-1], F32_TYPE, random_data(rng, shape, F32_TYPE))
    return builder


def shards(whole: GgufBuilder, count: int) -> list[GgufBuilder]:
    """Deal the tensors of `whole` to `count` files, the first of which holds the metadata."""
    dealt = []
    for index in range(count):
        shard = GgufBuilder(entries=list(whole.entries) if index == 0 else [])
        shard.add("split.no", scalar(2, index)).add("split.count", scalar(2, count))
        shard.add("split.tensors.count", scalar(I32, len(whole.tensors)))
        shard.tensors = whole.tensors[index::count]
        dealt.append(shard)
    return dealt


def encoded(value: Any) -> bytes:
    """A metadata value in bytes; the type in the file follows from that in Python."""
    if isinstance(value, list):
        flags = all(isinstance(item, bool) for item in value)
        kind = BOOL if flags else U64 if max(value, default=0) >= 2**32 else I32
        return numbers(kind, value)
    if isinstance(value, str):
        return string(value)
    kind = BOOL if isinstance(value, bool) else F32 if isinstance(value, float) else U32
    return scalar(kind, value)


def random_data(rng: np.random.Generator, shape: Sequence[int], kind: int) -> bytes:
    """Values of either sign, a few hundredths large (in float32 around 1, as norms are)."""
    count = int(np.prod(shape))
    if kind == F32_TYPE:
        return rng.normal(1, 0.1, count).astype("<f4").tobytes()
    if kind == F16_TYPE:
        return rng.normal(0, 0.1, count).astype("<f2").tobytes()
    blocks = rng.integers(0, 256, (count // 32, BLOCK_BYTES[kind]), np.uint8)
    blocks[:, :2] = np.frombuffer(struct.pack("<e", SCALE), np.uint8)
    return blocks.tobytes()


def _add_tokenizer(builder: GgufBuilder) -> None:
    """Every byte as a token of its own, one merged pair, two control tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(b) if b in printable else chr(next(others)) for b in range(256)]
    tokens = [*letters, "<|end|>", "<|user|>", "ab", "abc"]
    builder.add("tokenizer.ggml.model", string("gpt2"))
    builder.add("tokenizer.ggml.pre", string("qwen2"))
    builder.add("tokenizer.ggml.tokens", strings(tokens))
    builder.add("tokenizer.ggml.token_type", numbers(I32, [1] * 256 + [3, 3, 1, 1]))
    builder.add("tokenizer.ggml.merges", strings(["a b", "ab c"]))
    builder.add("tokenizer.ggml.eos_token_id", scalar(U32, 256))
