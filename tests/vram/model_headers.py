"""Writes GGUF files that are all header: the tensor data are a hole in a sparse file.

The 35B-A3B shape as published: 40 trunk layers of which every fourth attends, 256 experts top-8.
Experts IQ4_XS, shared experts and keys Q8_0, head Q5_K, the rest Q6_K; values are Q8_0 in seven
of the ten attention layers, as files of mixed types have it, which makes 1,232 MiB of dense
weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from tests.gguf_builder import F32 as F32_VALUE
from tests.gguf_builder import U32, GgufBuilder, big_vocabulary, scalar, string

F32, Q8_0, Q5_K, Q6_K, IQ4_XS = 0, 8, 13, 14, 23
BLOCKS = {F32: (1, 4), Q8_0: (32, 34), Q5_K: (256, 176), Q6_K: (256, 210), IQ4_XS: (256, 136)}
"""Values and bytes of a block of each type."""

Entry = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class Sizes:
    """Hyperparameters of a qwen35moe model; `draft` is the number of MTP blocks."""

    width: int = 2048
    layers: int = 40
    draft: int = 0
    heads: int = 16
    kv_heads: int = 2
    head_size: int = 256
    experts: int = 256
    used: int = 8
    inner: int = 512
    shared: int = 512
    vocab: int = 248_320
    merges: int = 247_587
    key_heads: int = 16
    value_heads: int = 32
    state: int = 128
    conv: int = 4
    context: int = 262_144
    expert_type: int = IQ4_XS
    tied: bool = False
    name: str = "Synthetic 35B-A3B"
    extra: dict[str, int] = field(default_factory=dict)


def stored_bytes(shape: tuple[int, ...], kind: int) -> int:
    """Bytes of a tensor of row-major `shape`."""
    values, n_bytes = BLOCKS[kind]
    return prod(shape) // values * n_bytes


def write_header_only(path: Path, sizes: Sizes) -> Path:
    """Write the model with everything but its tensor data, which read as zeros."""
    builder = big_vocabulary(sizes.vocab, sizes.merges)
    builder.add("general.name", string(sizes.name))
    for key, value in (*_numbers(sizes), *sizes.extra.items()):
        builder.add(f"qwen35moe.{key}", scalar(U32, value))
    builder.add("qwen35moe.attention.layer_norm_rms_epsilon", scalar(F32_VALUE, 1e-6))
    end = add_tensors(builder, tensors_of(sizes))
    path.write_bytes(builder.build())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + end)
    return path


def add_tensors(builder: GgufBuilder, entries: Iterator[Entry]) -> int:
    """Add the lines of a tensor table without data and return the bytes the data would take."""
    position = 0
    for name, shape, kind in entries:
        builder.tensor(name, shape[::-1], kind, data=b"", offset=position)
        position += -(-stored_bytes(shape, kind) // builder.alignment) * builder.alignment
    return position


def tensors_of(sizes: Sizes) -> Iterator[Entry]:
    """All tensors: name, row-major shape, type."""
    yield "token_embd.weight", (sizes.vocab, sizes.width), Q5_K
    if not sizes.tied:
        yield "output.weight", (sizes.vocab, sizes.width), Q5_K
    yield "output_norm.weight", (sizes.width,), F32
    for index in range(sizes.layers + sizes.draft):
        attends = (index + 1) % 4 == 0 or index >= sizes.layers
        for part, shape, kind in _layer(sizes, attends, value_type=_value_type(index)):
            yield f"blk.{index}.{part}", shape, kind
        if index >= sizes.layers:
            yield from _nextn(sizes, index)


def _value_type(index: int) -> int:
    return Q8_0 if index < 28 else Q6_K


def _nextn(sizes: Sizes, index: int) -> Iterator[Entry]:
    yield f"blk.{index}.nextn.eh_proj.weight", (sizes.width, 2 * sizes.width), Q6_K
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{index}.nextn.{norm}.weight", (sizes.width,), F32


def _layer(sizes: Sizes, attends: bool, value_type: int) -> Iterator[Entry]:
    width = sizes.width
    yield "attn_norm.weight", (width,), F32
    yield "post_attention_norm.weight", (width,), F32
    yield from _attention(sizes, value_type) if attends else _delta_net(sizes)
    yield "ffn_gate_inp.weight", (sizes.experts, width), F32
    for name in ("gate", "up"):
        yield f"ffn_{name}_exps.weight", (sizes.experts, sizes.inner, width), sizes.expert_type
        yield f"ffn_{name}_shexp.weight", (sizes.shared, width), Q8_0
    yield "ffn_down_exps.weight", (sizes.experts, width, sizes.inner), sizes.expert_type
    yield "ffn_down_shexp.weight", (width, sizes.shared), Q8_0
    yield "ffn_gate_inp_shexp.weight", (width,), F32


def _attention(sizes: Sizes, value_type: int) -> Iterator[Entry]:
    heads, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    yield "attn_q.weight", (2 * heads, sizes.width), Q6_K
    yield "attn_k.weight", (keys, sizes.width), Q8_0
    yield "attn_v.weight", (keys, sizes.width), value_type
    yield "attn_output.weight", (sizes.width, heads), Q6_K
    yield "attn_q_norm.weight", (sizes.head_size,), F32
    yield "attn_k_norm.weight", (sizes.head_size,), F32


def _delta_net(sizes: Sizes) -> Iterator[Entry]:
    inner = sizes.value_heads * sizes.state
    channels = 2 * sizes.key_heads * sizes.state + inner
    yield "attn_qkv.weight", (channels, sizes.width), Q6_K
    yield "attn_gate.weight", (inner, sizes.width), Q6_K
    yield "ssm_beta.weight", (sizes.value_heads, sizes.width), F32
    yield "ssm_alpha.weight", (sizes.value_heads, sizes.width), F32
    yield "ssm_conv1d.weight", (channels, sizes.conv), F32
    yield "ssm_dt.bias", (sizes.value_heads,), F32
    yield "ssm_a", (sizes.value_heads,), F32
    yield "ssm_norm.weight", (sizes.state,), F32
    yield "ssm_out.weight", (sizes.width, inner), Q6_K


def _numbers(sizes: Sizes) -> Iterator[tuple[str, int]]:
    yield "block_count", sizes.layers + sizes.draft
    yield "nextn_predict_layers", sizes.draft
    yield "context_length", sizes.context
    yield "embedding_length", sizes.width
    yield "attention.head_count", sizes.heads
    yield "attention.head_count_kv", sizes.kv_heads
    yield "attention.key_length", sizes.head_size
    yield "attention.value_length", sizes.head_size
    yield "rope.dimension_count", sizes.head_size // 4
    yield "expert_count", sizes.experts
    yield "expert_used_count", sizes.used
    yield "expert_feed_forward_length", sizes.inner
    yield "expert_shared_feed_forward_length", sizes.shared
    yield "full_attention_interval", 4
    yield "ssm.conv_kernel", sizes.conv
    yield "ssm.state_size", sizes.state
    yield "ssm.group_count", sizes.key_heads
    yield "ssm.time_step_rank", sizes.value_heads
    yield "ssm.inner_size", sizes.value_heads * sizes.state
