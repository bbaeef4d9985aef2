"""Guards against sums that do not add up, tensors in the wrong group, and a "supported" that
a later load contradicts.
"""

import json
from pathlib import Path

import pytest
from gguf import GGUFReader

from stratadesk.engine.architectures import SUPPORTED
from stratadesk.engine.inspection import Inspection, inspect_model
from stratadesk.engine.tensor_groups import GROUPS, TensorGroups
from stratadesk.errors import GgufError
from tests.gguf_builder import (
    TQ1_0_TYPE,
    U32,
    GgufBuilder,
    scalar,
    small_model,
    string,
    write_set,
)
from tests.gguf_builder import strings as string_array
from tests.tiny_models import FAMILIES, tiny_model

KEYS = [
    "architecture",
    "name",
    "file_bytes",
    "tensors",
    "layers",
    "experts",
    "experts_used",
    "head_bytes",
    "context_length",
    "tokenizer",
    "chat_template",
    "supported",
    "why_not",
]


def golden(data_dir: Path, name: str) -> Inspection:
    return inspect_model(data_dir / "models" / f"{name}.gguf")


def test_json_has_exactly_the_promised_keys(data_dir: Path) -> None:
    found = golden(data_dir, "qwen35moe-ud-q4k").as_json()
    assert list(found) == KEYS
    assert json.loads(json.dumps(found)) == found
    assert list(found["tensors"]) == list(GROUPS)  # type: ignore[call-overload]
    assert found["tokenizer"] == {"model": "gpt2", "pre": "qwen35", "size": 1536}
    assert found["supported"] is True
    assert found["why_not"] is None


@pytest.mark.parametrize("name", ["qwen35moe-ud-q4k", "qwen3moe-iq4_xs", "qwen3-tied-q6_k"])
def test_groups_add_up_to_all_tensors(data_dir: Path, name: str) -> None:
    reader = GGUFReader(data_dir / "models" / f"{name}.gguf")
    by_type: dict[str, int] = {}
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        by_type[kind] = by_type.get(kind, 0) + int(tensor.n_bytes)
    found: dict[str, int] = {}
    for types in golden(data_dir, name).tensors.values():
        for kind, n_bytes in types.items():
            found[kind] = found.get(kind, 0) + n_bytes
    assert found == by_type


def test_trunk_mtp_and_head(data_dir: Path) -> None:
    found = golden(data_dir, "qwen35moe-ud-q4k")
    reader = GGUFReader(data_dir / "models" / "qwen35moe-ud-q4k.gguf")
    blocks = int(reader.fields["qwen35moe.block_count"].contents())
    assert found.layers == blocks - 1
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
    last = sum(size for name, size in sizes.items() if name.startswith(f"blk.{blocks - 1}."))
    assert sum(found.tensors["mtp"].values()) == last > 0
    assert found.head_bytes == sizes["output.weight"]
    assert found.experts == int(reader.fields["qwen35moe.expert_count"].contents())
    assert found.experts_used == int(reader.fields["qwen35moe.expert_used_count"].contents())


def test_tied_head_counts_the_embedding(data_dir: Path) -> None:
    found = golden(data_dir, "qwen3-tied-q6_k")
    assert found.tensors["head"] == {}
    assert found.head_bytes == sum(found.tensors["embedding"].values()) > 0
    assert found.experts == found.experts_used == 0


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("token_embd.weight", "embedding"),
        ("output.weight", "head"),
        ("output_norm.weight", "norms"),
        ("blk.0.attn_qkv.weight", "delta_net"),
        ("blk.0.attn_gate.weight", "delta_net"),
        ("blk.0.ssm_a", "delta_net"),
        ("blk.1.attn_qkv.weight", "attention"),
        ("blk.1.attn_q.weight", "attention"),
        ("blk.1.attn_q_norm.weight", "norms"),
        ("blk.1.post_attention_norm.weight", "norms"),
        ("blk.1.ffn_gate_inp.weight", "router"),
        ("blk.1.exp_probs_b.bias", "router"),
        ("blk.1.ffn_gate_inp_shexp.weight", "shared_experts"),
        ("blk.1.ffn_up_shexp.weight", "shared_experts"),
        ("blk.1.ffn_gate_up_exps.weight", "experts"),
        ("blk.1.ffn_down_exps.weight", "experts"),
        ("blk.1.ffn_down.weight", "other"),
        ("blk.2.attn_q.weight", "mtp"),
        ("blk.2.nextn.eh_proj.weight", "mtp"),
        ("rope_freqs.weight", "other"),
        ("blk.x.attn_q.weight", "other"),
    ],
)
def test_group_of_a_name(name: str, group: str) -> None:
    groups = TensorGroups(["blk.0.ssm_a", name], trunk_layers=2)
    assert groups.group_of(name) == group


def test_vocabulary_only_file_of_any_architecture(tmp_path: Path) -> None:
    builder = GgufBuilder().add("general.architecture", string("whatever"))
    builder.add("tokenizer.ggml.model", string("gpt2"))
    builder.add("tokenizer.ggml.tokens", string_array(["a", "b"]))
    found = inspect_model(builder.write(tmp_path / "vocab.gguf"))
    assert (found.name, found.layers, found.head_bytes) == ("vocab", 0, 0)
    assert found.tokenizer.size == 2
    assert found.why_not
    assert "'whatever'" in found.why_not
    assert "total" not in found.as_table()


def why_not(folder: Path, builder: GgufBuilder) -> str | None:
    return inspect_model(builder.write(folder / "m.gguf")).why_not


@pytest.mark.parametrize("architecture", SUPPORTED)
def test_a_sound_model_is_supported(architecture: str, tmp_path: Path) -> None:
    assert why_not(tmp_path, tiny_model(architecture)) is None


def test_a_header_that_does_not_fit_its_tensors_is_not_called_supported(tmp_path: Path) -> None:
    values = {**FAMILIES["qwen3moe"], "expert_feed_forward_length": 64}
    builder = tiny_model("qwen3moe")
    builder.entries = [
        (key, scalar(U32, 64) if str(key).endswith("expert_feed_forward_length") else value)
        for key, value in builder.entries
    ]
    assert why_not(tmp_path, tiny_model("qwen3moe", values)) is None
    reason = why_not(tmp_path, builder)
    assert reason
    assert reason.endswith("as qwen3moe.expert_feed_forward_length is 64.")
    assert "ffn_gate_exps.weight has shape [4, 32, 32], wanted [4, 64, 32]" in reason


def test_why_not_names_the_culprit_and_what_there_is(tmp_path: Path) -> None:
    assert why_not(tmp_path, small_model("llama")) == (
        f"The architecture 'llama' is not supported; this version runs {', '.join(SUPPORTED)}."
    )
    tq1 = small_model().tensor("blk.0.attn_q.weight", (256, 1), TQ1_0_TYPE, bytes(54))
    reason = why_not(tmp_path, tq1)
    assert reason
    assert reason.startswith("Tensor 'blk.0.attn_q.weight' has the type TQ1_0; this version compu")
    assert "IQ4_XS" in reason


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tokenizer.ggml.model", "llama", "The tokenizer model 'llama' is not supported"),
        ("tokenizer.ggml.pre", "no-such", "The pre-tokenizer 'no-such' is not supported; this ver"),
    ],
)
def test_unsupported_tokenizers(tmp_path: Path, key: str, value: str, words: str) -> None:
    builder = small_model()
    builder.entries = [entry for entry in builder.entries if entry[0] != key]
    reason = why_not(tmp_path, builder.add(key, string(value)))
    assert reason
    assert reason.startswith(words)


def test_vocabulary_of_a_supported_architecture_is_no_model(tmp_path: Path) -> None:
    builder = small_model()
    builder.tensors.clear()
    assert why_not(tmp_path, builder) == "'m.gguf' holds a vocabulary only, no tensors."


def test_split_models_are_summed(tmp_path: Path) -> None:
    paths = write_set(tmp_path, "m", 3)
    found = inspect_model(paths[2])
    assert found.file_bytes == sum(path.stat().st_size for path in paths)
    assert sum(found.tensors["norms"].values()) + sum(found.tensors["mtp"].values()) == 3 * 32


def test_header_without_architecture_is_an_error(tmp_path: Path) -> None:
    path = GgufBuilder().add("general.name", string("x")).write(tmp_path / "m.gguf")
    with pytest.raises(GgufError, match=r"lacks the metadata key 'general\.architecture'"):
        inspect_model(path)


def test_table_shows_the_facts_in_80_columns(data_dir: Path) -> None:
    table = golden(data_dir, "qwen35moe-ud-q4k").as_table()
    lines = table.splitlines()
    assert lines[0] == "qwen35moe-ud-q4k"
    assert max(map(len, lines)) <= 80
    assert "  supported       yes" in lines
    assert any(line.startswith("  experts   ") and "Q4_K" in line for line in lines)


def test_names_from_the_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    builder = small_model(name="evil\x1b[2J\nname").add("qwen3moe.expert_count", scalar(U32, 4))
    table = inspect_model(builder.write(tmp_path / "m.gguf")).as_table()
    assert "\x1b" not in table
    assert table.splitlines()[0] == "evil\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}name"
