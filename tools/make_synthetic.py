"""Write a model of real shape and random weights, to measure memory and speed with.

    python -m tools.make_synthetic OUT.gguf --gib 2 [--seed 1]

Architecture qwen3moe: width 2,048, 128 experts of width 768, 8 per token, Q4_K experts, Q6_K
attention and head, a small byte-level vocabulary. The number of layers follows from the size.
Its answers are noise.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

WIDTH, HEADS, KV_HEADS, HEAD_SIZE = 2048, 16, 4, 128
EXPERTS, USED, INNER, VOCAB = 128, 8, 768, 4096

Bytes = npt.NDArray[np.uint8]
Tensor = tuple[str, tuple[int, ...], GGMLQuantizationType]

# Where the half-precision scales of a block lie, and a size that keeps activations near 1.
SCALES = {GGMLQuantizationType.Q4_K: ((0, 2), 0.0008), GGMLQuantizationType.Q6_K: ((208,), 0.0004)}


def layer_tensors(index: int) -> Iterator[Tensor]:
    """Name, row-major shape and type of a layer's tensors."""
    prefix = f"blk.{index}."
    q, kv = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    for name, shape in (
        ("attn_norm", (WIDTH,)),
        ("ffn_norm", (WIDTH,)),
        ("attn_q_norm", (HEAD_SIZE,)),
        ("attn_k_norm", (HEAD_SIZE,)),
        ("ffn_gate_inp", (EXPERTS, WIDTH)),
    ):
        yield f"{prefix}{name}.weight", shape, GGMLQuantizationType.F32
    for name, shape in (
        ("attn_q", (q, WIDTH)),
        ("attn_k", (kv, WIDTH)),
        ("attn_v", (kv, WIDTH)),
        ("attn_output", (WIDTH, q)),
    ):
        yield f"{prefix}{name}.weight", shape, GGMLQuantizationType.Q6_K
    for name, rows, columns in (
        ("gate", INNER, WIDTH),
        ("up", INNER, WIDTH),
        ("down", WIDTH, INNER),
    ):
        yield f"{prefix}ffn_{name}_exps.weight", (EXPERTS, rows, columns), GGMLQuantizationType.Q4_K


def all_tensors(layers: int) -> list[Tensor]:
    """Every tensor of a model of so many layers."""
    return [
        ("token_embd.weight", (VOCAB, WIDTH), GGMLQuantizationType.Q6_K),
        ("output_norm.weight", (WIDTH,), GGMLQuantizationType.F32),
        ("output.weight", (VOCAB, WIDTH), GGMLQuantizationType.Q6_K),
        *(tensor for index in range(layers) for tensor in layer_tensors(index)),
    ]


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor."""
    values, n_bytes = GGML_QUANT_SIZES[tensor[2]]
    return math.prod(tensor[1]) // int(values) * int(n_bytes)


def content(tensor: Tensor, random: np.random.Generator) -> npt.NDArray[Any]:
    """Random weights in the tensor's format: quants of any value under one fixed scale."""
    _, shape, kind = tensor
    if kind is GGMLQuantizationType.F32:
        ones = len(shape) == 1
        return np.ones(shape, np.float32) if ones else random.standard_normal(shape, np.float32)
    blocks: Bytes = np.frombuffer(random.bytes(size_of(tensor)), np.uint8)
    blocks = blocks.reshape(-1, GGML_QUANT_SIZES[kind][1]).copy()
    places, scale = SCALES[kind]
    for place in places:
        blocks[:, place : place + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return blocks


def write(path: Path, gib: float, seed: int) -> int:
    """Write a file of about `gib` GiB; returns the number of layers."""
    per_layer = sum(map(size_of, layer_tensors(0)))
    layers = max(1, round(gib * 2**30 / per_layer))
    tensors = all_tensors(layers)
    writer = gguf.GGUFWriter(path, "qwen3moe")
    describe(writer, layers)
    for name, shape, kind in tensors:
        writer.add_tensor_info(
            name, shape, np.dtype(np.float32), size_of((name, shape, kind)), kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(seed)
    for tensor in tensors:
        writer.write_tensor_data(content(tensor, random))
    writer.close()
    return layers


def describe(writer: gguf.GGUFWriter, layers: int) -> None:
    """Add hyperparameters and a byte-level vocabulary."""
    writer.add_name("synthetic qwen3moe")
    writer.add_block_count(layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    writer.add_expert_feed_forward_length(INNER)
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_ins = [*map(chr, letters), *(chr(256 + i) for i in range(256 - len(letters)))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    tokens = [*stand_ins, "th"]
    writer.add_token_list([*tokens, *(f"<extra_{i}>" for i in range(VOCAB - len(tokens)))])
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(VOCAB - 1)


def main() -> None:
    """Write the file that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    layers = write(given.path, given.gib, given.seed)
    print(f"{given.path}: {layers} layers, {given.path.stat().st_size / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
