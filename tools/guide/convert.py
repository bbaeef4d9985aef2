"""From the weights of a trained guide to a GGUF file of architecture qwen35moe.

    python -m tools.guide.convert RUN OUT.gguf [--mix guide|f32]

RUN is the folder that training wrote: `weights.npz`, `config.json`, `tokenizer.json`. What a
checkpoint of Qwen3.5 holds differs from a GGUF file in this:

- norms are stored as w, not as 1 + w (all but the delta net's own norm);
- the delta net's decay is stored as A_log; the file holds -exp(A_log);
- value head j of a delta net belongs to key head j // r in a checkpoint and to j mod n_k in a
  file, with r value heads for each of n_k key heads: everything per value head changes places;
- gate and up of the routed experts are one tensor;
- the draft block is ours and lies behind the trunk's layers.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType as Kind

from tools.guide.quantize import quantize

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, Array]
Tensors = Iterator[tuple[str, Array]]

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Control tokens, the first ids of the vocabulary."""

_EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_SMALL = ("ffn_gate_inp", "ssm_alpha", "ssm_beta", "ssm_conv1d", "ssm_dt", "ssm_a", "norm")


def format_of(name: str, shape: tuple[int, ...], mix: str) -> Kind:
    """How a tensor of the file is stored in a mix: `f32`, or `guide` for the bundled file."""
    if mix == "f32" or len(shape) == 1 or any(part in name for part in _SMALL):
        return Kind.F32
    if any(part in name for part in _EXPERTS):
        return Kind.Q4_K
    if name in ("output.weight", "token_embd.weight"):
        return Kind.Q5_K
    return Kind.Q6_K


# -- tensors ----------------------------------------------------------------------------------


def file_tensors(arrays: Arrays, config: Mapping[str, Any]) -> Tensors:
    """All tensors of the file as name and float32 array, rows being what gets quantized."""
    yield "token_embd.weight", arrays["model.embed_tokens.weight"]
    yield "output_norm.weight", 1 + arrays["model.norm.weight"]
    yield "output.weight", arrays["lm_head.weight"]
    for index, kind in enumerate(config["layer_types"]):
        source, target = f"model.layers.{index}.", f"blk.{index}."
        mixer = _delta_net if kind == "linear_attention" else _attention
        yield from mixer(arrays, source, target, config)
        yield from _around(arrays, source, target)
    target = f"blk.{len(config['layer_types'])}."
    yield from _attention(arrays, "draft.block.", target, config)
    yield from _around(arrays, "draft.block.", target)
    yield f"{target}nextn.eh_proj.weight", arrays["draft.eh_proj.weight"]
    for source, name in (("enorm", "enorm"), ("hnorm", "hnorm"), ("norm", "shared_head_norm")):
        yield f"{target}nextn.{name}.weight", 1 + arrays[f"draft.{source}.weight"]


def _around(arrays: Arrays, source: str, target: str) -> Tensors:
    """The two norms of a layer, its router and its experts."""
    yield f"{target}attn_norm.weight", 1 + arrays[f"{source}input_layernorm.weight"]
    after = 1 + arrays[f"{source}post_attention_layernorm.weight"]
    yield f"{target}post_attention_norm.weight", after
    mlp = f"{source}mlp."
    yield f"{target}ffn_gate_inp.weight", arrays[f"{mlp}gate.weight"]
    gate, up = np.split(arrays[f"{mlp}experts.gate_up_proj"], 2, axis=1)
    yield f"{target}ffn_gate_exps.weight", gate
    yield f"{target}ffn_up_exps.weight", up
    yield f"{target}ffn_down_exps.weight", arrays[f"{mlp}experts.down_proj"]
    yield f"{target}ffn_gate_inp_shexp.weight", arrays[f"{mlp}shared_expert_gate.weight"][0]
    for part in ("gate", "up", "down"):
        shared = arrays[f"{mlp}shared_expert.{part}_proj.weight"]
        yield f"{target}ffn_{part}_shexp.weight", shared


def _attention(arrays: Arrays, source: str, target: str, _config: Mapping[str, Any]) -> Tensors:
    """Rows of the query already alternate per head between query and gate, as in the file."""
    own = f"{source}self_attn."
    for name, part in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o")):
        yield f"{target}attn_{name}.weight", arrays[f"{own}{part}_proj.weight"]
    for name in ("q", "k"):
        yield f"{target}attn_{name}_norm.weight", 1 + arrays[f"{own}{name}_norm.weight"]


def tiled_order(key_heads: int, value_heads: int) -> npt.NDArray[np.int64]:
    """For each value head of the file its number in the checkpoint.

    >>> tiled_order(2, 6).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    grouped = np.arange(value_heads).reshape(key_heads, value_heads // key_heads)
    return grouped.T.reshape(-1)


class _Places:
    """Where the value heads of a delta net stand in the checkpoint, in the file's order.

    `order` is by head, `rows` by row of a value matrix; keys and queries, `keys` rows, stay.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        key_heads, state = config["linear_num_key_heads"], config["linear_value_head_dim"]
        self.order = tiled_order(key_heads, config["linear_num_value_heads"])
        self.rows = (self.order[:, None] * state + np.arange(state)).reshape(-1)
        self.keys = 2 * key_heads * int(config["linear_key_head_dim"])

    def behind_keys(self, x: Array, rows: npt.NDArray[np.int64]) -> Array:
        """Rows for queries and keys as they are, those for values in another order."""
        return np.concatenate((x[: self.keys], x[self.keys :][rows]))


def _delta_net(arrays: Arrays, source: str, target: str, config: Mapping[str, Any]) -> Tensors:
    own, places = f"{source}linear_attn.", _Places(config)
    order, rows = places.order, places.rows
    qkv = arrays[f"{own}in_proj_qkv.weight"]
    yield f"{target}attn_qkv.weight", places.behind_keys(qkv, rows)
    yield f"{target}attn_gate.weight", arrays[f"{own}in_proj_z.weight"][rows]
    kernel = arrays[f"{own}conv1d.weight"][:, 0]
    yield f"{target}ssm_conv1d.weight", places.behind_keys(kernel, rows)
    yield f"{target}ssm_dt.bias", arrays[f"{own}dt_bias"][order]
    yield f"{target}ssm_a", -np.exp(arrays[f"{own}A_log"][order])
    yield f"{target}ssm_beta.weight", arrays[f"{own}in_proj_b.weight"][order]
    yield f"{target}ssm_alpha.weight", arrays[f"{own}in_proj_a.weight"][order]
    yield f"{target}ssm_norm.weight", arrays[f"{own}norm.weight"]
    yield f"{target}ssm_out.weight", arrays[f"{own}out_proj.weight"][:, rows]


def checkpoint_arrays(path: Path, config: Mapping[str, Any]) -> dict[str, Array]:
    """The weights of a file that `write` made, dequantized, under the checkpoint's names.

    The way back of `file_tensors`: writing the arrays again gives the same float32 tensors.
    """
    tensors = {
        tensor.name: np.asarray(
            gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32
        ).reshape(tensor.shape[::-1].tolist())
        for tensor in gguf.GGUFReader(path).tensors
    }
    arrays = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"] - 1,
        "lm_head.weight": tensors["output.weight"],
    }
    layers = len(config["layer_types"])
    for index, kind in enumerate((*config["layer_types"], "draft")):
        target = "draft.block." if kind == "draft" else f"model.layers.{index}."
        own = {
            name.removeprefix(f"blk.{index}."): array
            for name, array in tensors.items()
            if name.startswith(f"blk.{index}.")
        }
        mixer = _delta_net_back(own, config) if kind == "linear_attention" else _attention_back(own)
        for name, array in {**mixer, **_around_back(own)}.items():
            arrays[f"{target}{name}"] = array
    nextn = f"blk.{layers}.nextn."
    arrays["draft.eh_proj.weight"] = tensors[f"{nextn}eh_proj.weight"]
    for name, source in (("enorm", "enorm"), ("hnorm", "hnorm"), ("norm", "shared_head_norm")):
        arrays[f"draft.{name}.weight"] = tensors[f"{nextn}{source}.weight"] - 1
    return arrays


def _around_back(own: Arrays) -> dict[str, Array]:
    gate_up = np.concatenate((own["ffn_gate_exps.weight"], own["ffn_up_exps.weight"]), axis=1)
    shared = {
        f"mlp.shared_expert.{part}_proj.weight": own[f"ffn_{part}_shexp.weight"]
        for part in ("gate", "up", "down")
    }
    return {
        "input_layernorm.weight": own["attn_norm.weight"] - 1,
        "post_attention_layernorm.weight": own["post_attention_norm.weight"] - 1,
        "mlp.gate.weight": own["ffn_gate_inp.weight"],
        "mlp.experts.gate_up_proj": gate_up,
        "mlp.experts.down_proj": own["ffn_down_exps.weight"],
        "mlp.shared_expert_gate.weight": own["ffn_gate_inp_shexp.weight"][None],
        **shared,
    }


def _attention_back(own: Arrays) -> dict[str, Array]:
    parts = (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o"))
    return {
        **{f"self_attn.{part}_proj.weight": own[f"attn_{name}.weight"] for name, part in parts},
        **{f"self_attn.{name}_norm.weight": own[f"attn_{name}_norm.weight"] - 1 for name in "qk"},
    }


def _delta_net_back(own: Arrays, config: Mapping[str, Any]) -> dict[str, Array]:
    places = _Places(config)
    order, rows = np.argsort(places.order), np.argsort(places.rows)
    kernel = places.behind_keys(own["ssm_conv1d.weight"], rows)[:, None]
    found = {
        "in_proj_qkv.weight": places.behind_keys(own["attn_qkv.weight"], rows),
        "in_proj_z.weight": own["attn_gate.weight"][rows],
        "conv1d.weight": kernel,
        "dt_bias": own["ssm_dt.bias"][order],
        "A_log": np.log(-own["ssm_a"][order]),
        "in_proj_b.weight": own["ssm_beta.weight"][order],
        "in_proj_a.weight": own["ssm_alpha.weight"][order],
        "norm.weight": own["ssm_norm.weight"],
        "out_proj.weight": own["ssm_out.weight"][:, rows],
    }
    return {f"linear_attn.{name}": array for name, array in found.items()}


# -- metadata ---------------------------------------------------------------------------------


def describe(writer: gguf.GGUFWriter, config: Mapping[str, Any], name: str) -> None:
    """Add the hyperparameters under the keys of qwen35moe."""
    rope = config["rope_parameters"]
    head, state = config["head_dim"], config["linear_key_head_dim"]
    writer.add_name(name)
    writer.add_license("MIT")
    writer.add_quantization_version(2)
    writer.add_block_count(config["num_hidden_layers"] + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(int(head * rope["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    writer.add_full_attention_interval(4)
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * state)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Mapping[str, Any]) -> None:
    """Add a byte-level BPE as `tokenizers` writes it, and the chat template."""
    vocabulary: dict[str, int] = dict(tokenizer["model"]["vocab"])
    vocabulary.update((token["content"], token["id"]) for token in tokenizer["added_tokens"])
    texts = sorted(vocabulary, key=vocabulary.__getitem__)
    control = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(texts)
    writer.add_token_types([control[text not in SPECIAL] for text in texts])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_pad_token_id(vocabulary["<|endoftext|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(run: Path, path: Path, mix: str, name: str = "StrataDesk Guide") -> None:
    """Write the guide that lies in the folder `run` to the GGUF file `path`."""
    config = json.loads((run / "config.json").read_text("utf-8"))
    tokenizer = json.loads((run / "tokenizer.json").read_text("utf-8"))
    with np.load(run / "weights.npz") as arrays:
        writer = gguf.GGUFWriter(path, "qwen35moe")
        describe(writer, config, name)
        add_tokenizer(writer, tokenizer)
        for tensor, values in file_tensors(dict(arrays), config):
            kind = format_of(tensor, values.shape, mix)
            if kind is Kind.F32:
                writer.add_tensor(tensor, np.ascontiguousarray(values, np.float32))
            else:
                writer.add_tensor(tensor, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def main() -> None:
    """Write the file that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("--mix", choices=("guide", "f32"), default="guide")
    given = parser.parse_args()
    write(given.run, given.path, given.mix)
    print(f"{given.path}: {given.path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
