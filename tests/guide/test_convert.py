"""Guards against a converted guide that loads and talks nonsense: heads in the checkpoint's order,
norms without their 1, gates split wrongly, tensors or metadata that llama.cpp would not find.

The reference is a small forward pass in float64 that follows a checkpoint's own conventions; the
file is read by this program's engine. PyTorch itself is held to the engine by `tools.guide.check`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.logits import write_logits
from tools.guide import convert

Array = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[np.float32]]

V, E, H, G, D, S, NK, NV, F, N, K = 280, 256, 4, 2, 64, 64, 2, 8, 256, 4, 2
EPS, THETA, ROTATED = 1e-6, 10000.0, 16

CONFIG: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": E,
    "num_hidden_layers": 4,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": D,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": S,
    "linear_value_head_dim": S,
    "linear_num_key_heads": NK,
    "linear_num_value_heads": NV,
    "moe_intermediate_size": F,
    "shared_expert_intermediate_size": F,
    "num_experts": N,
    "num_experts_per_tok": K,
    "max_position_embeddings": 64,
    "rms_norm_eps": EPS,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "rope_parameters": {
        "rope_theta": THETA,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
    },
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Every weight of the checkpoint; all sizes differ where a transposition could hide."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (V, E),
        "model.norm.weight": (E,),
        "lm_head.weight": (V, E),
        "draft.eh_proj.weight": (E, 2 * E),
        **{f"draft.{name}.weight": (E,) for name in ("enorm", "hnorm", "norm")},
    }
    keys, values = NK * S, NV * S
    for prefix in (*(f"model.layers.{i}." for i in range(4)), "draft.block."):
        mlp = f"{prefix}mlp."
        found |= {
            f"{prefix}input_layernorm.weight": (E,),
            f"{prefix}post_attention_layernorm.weight": (E,),
            f"{mlp}gate.weight": (N, E),
            f"{mlp}experts.gate_up_proj": (N, 2 * F, E),
            f"{mlp}experts.down_proj": (N, E, F),
            f"{mlp}shared_expert_gate.weight": (1, E),
            f"{mlp}shared_expert.gate_proj.weight": (F, E),
            f"{mlp}shared_expert.up_proj.weight": (F, E),
            f"{mlp}shared_expert.down_proj.weight": (E, F),
        }
        if prefix in ("model.layers.3.", "draft.block."):
            own = f"{prefix}self_attn."
            found |= {
                f"{own}q_proj.weight": (H * 2 * D, E),
                f"{own}k_proj.weight": (G * D, E),
                f"{own}v_proj.weight": (G * D, E),
                f"{own}o_proj.weight": (E, H * D),
                f"{own}q_norm.weight": (D,),
                f"{own}k_norm.weight": (D,),
            }
        else:
            own = f"{prefix}linear_attn."
            found |= {
                f"{own}in_proj_qkv.weight": (2 * keys + values, E),
                f"{own}in_proj_z.weight": (values, E),
                f"{own}in_proj_b.weight": (NV, E),
                f"{own}in_proj_a.weight": (NV, E),
                f"{own}conv1d.weight": (2 * keys + values, 1, 4),
                f"{own}dt_bias": (NV,),
                f"{own}A_log": (NV,),
                f"{own}norm.weight": (S,),
                f"{own}out_proj.weight": (E, values),
            }
    return found


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    random = np.random.default_rng(4)
    made = {}
    for name, shape in shapes().items():
        scale = 0.3 if len(shape) == 1 else 1.5 / np.sqrt(shape[-1])
        made[name] = (random.standard_normal(shape) * scale).astype(np.float32)
    return made


@pytest.fixture(scope="module")
def run(arrays: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as training leaves it."""
    import json

    folder = tmp_path_factory.mktemp("run")
    np.savez(folder / "weights.npz", **dict(arrays))
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [*convert.SPECIAL, *letters, "ab", *(f"pad{i}" for i in range(V - 4 - len(letters)))]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, [("a", "b")]))
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in convert.SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


# -- the reference ----------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def rms(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS))


@dataclass
class Reference:
    """Logits of a checkpoint, in its own conventions: grouped heads, norms of 1 + w, A_log."""

    weights: Mapping[str, Array]

    def w(self, name: str) -> Array:
        return self.weights[name]

    def norm(self, x: Array, name: str) -> Array:
        return rms(x) * (1 + self.w(name))

    def logits(self, tokens: list[int]) -> tuple[Array, Array]:
        embedded = self.w("model.embed_tokens.weight")[tokens]
        x = embedded
        for index, kind in enumerate(CONFIG["layer_types"]):
            x = self.layer(x, f"model.layers.{index}.", kind == "full_attention")
        hidden = self.norm(x, "model.norm.weight")
        before = np.concatenate((np.zeros_like(hidden[:1]), hidden[:-1]))
        parts = self.norm(embedded, "draft.enorm.weight"), self.norm(before, "draft.hnorm.weight")
        drafted = np.concatenate(parts, axis=-1) @ self.w("draft.eh_proj.weight").T
        drafted = self.norm(self.layer(drafted, "draft.block.", True), "draft.norm.weight")
        head = self.w("lm_head.weight").T
        return hidden @ head, drafted @ head

    def layer(self, x: Array, prefix: str, attends: bool) -> Array:
        h = self.norm(x, f"{prefix}input_layernorm.weight")
        x = x + (self.attention if attends else self.delta_net)(h, prefix)
        return x + self.experts(self.norm(x, f"{prefix}post_attention_layernorm.weight"), prefix)

    def attention(self, h: Array, prefix: str) -> Array:
        own, length = f"{prefix}self_attn.", len(h)
        both = (h @ self.w(f"{own}q_proj.weight").T).reshape(length, H, 2 * D)
        q, gate = both[..., :D], both[..., D:]
        k = (h @ self.w(f"{own}k_proj.weight").T).reshape(length, G, D)
        v = (h @ self.w(f"{own}v_proj.weight").T).reshape(length, G, D)
        q = rotated(self.norm(q, f"{own}q_norm.weight"))
        k = rotated(self.norm(k, f"{own}k_norm.weight"))
        out = np.zeros((length, H, D))
        for head in range(H):
            scores = q[:, head] @ k[:, head // (H // G)].T / np.sqrt(D)
            scores[np.triu_indices(length, 1)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = shares / shares.sum(-1, keepdims=True) @ v[:, head // (H // G)]
        gated = (out * sigmoid(gate)).reshape(length, -1)
        return np.asarray(gated @ self.w(f"{own}o_proj.weight").T)

    def delta_net(self, h: Array, prefix: str) -> Array:
        own, length = f"{prefix}linear_attn.", len(h)
        u = h @ self.w(f"{own}in_proj_qkv.weight").T
        padded = np.concatenate((np.zeros((3, u.shape[1])), u))
        kernel = self.w(f"{own}conv1d.weight")[:, 0]
        mixed = silu(np.stack([(padded[t : t + 4] * kernel.T).sum(0) for t in range(length)]))
        q, k, v = np.split(mixed, [NK * S, 2 * NK * S], axis=1)
        q, k = (each.reshape(length, NK, S).repeat(NV // NK, axis=1) for each in (q, k))
        q, k = (each / np.sqrt((each**2).sum(-1, keepdims=True) + 1e-6) for each in (q, k))
        v, z = v.reshape(length, NV, S), (h @ self.w(f"{own}in_proj_z.weight").T)
        beta = sigmoid(h @ self.w(f"{own}in_proj_b.weight").T)
        rate = np.log1p(np.exp(h @ self.w(f"{own}in_proj_a.weight").T + self.w(f"{own}dt_bias")))
        decay = np.exp(-np.exp(self.w(f"{own}A_log")) * rate)
        state, out = np.zeros((NV, S, S)), np.zeros((length, NV, S))
        for t in range(length):
            state *= decay[t][:, None, None]
            missing = v[t] - np.einsum("hkv,hk->hv", state, k[t])
            state += np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * missing)
            out[t] = np.einsum("hkv,hk->hv", state, q[t]) / np.sqrt(S)
        gated = rms(out) * self.w(f"{own}norm.weight") * silu(z.reshape(length, NV, S))
        return np.asarray(gated.reshape(length, -1) @ self.w(f"{own}out_proj.weight").T)

    def experts(self, h: Array, prefix: str) -> Array:
        mlp = f"{prefix}mlp."
        scores = np.exp(h @ self.w(f"{mlp}gate.weight").T)
        out = np.zeros_like(h)
        for t, row in enumerate(scores):
            chosen = np.argsort(-row)[:K]
            for e in chosen:
                gate, up = np.split(self.w(f"{mlp}experts.gate_up_proj")[e] @ h[t], 2)
                down = self.w(f"{mlp}experts.down_proj")[e] @ (silu(gate) * up)
                out[t] += row[e] / row[chosen].sum() * down
        own = f"{mlp}shared_expert."
        inner = silu(h @ self.w(f"{own}gate_proj.weight").T) * (
            h @ self.w(f"{own}up_proj.weight").T
        )
        shared = inner @ self.w(f"{own}down_proj.weight").T
        return out + sigmoid(h @ self.w(f"{mlp}shared_expert_gate.weight").T) * shared


def rotated(x: Array) -> Array:
    """The first `ROTATED` values of each head turned by its position; halves are pairs."""
    half = ROTATED // 2
    angles = np.arange(len(x))[:, None] * THETA ** (-2 * np.arange(half) / ROTATED)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:ROTATED]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin, x[..., ROTATED:]), axis=-1)


# -- the tests --------------------------------------------------------------------------------


def engine_logits(file: Path, tokens: list[int], folder: Path) -> tuple[Array, Array]:
    settings = EngineSettings(
        device=Device.HOST, max_context=64, kv_format=KvFormat.F32, chunk=64, mtp=True
    )
    write_logits(file, tokens, folder / "out.npz", settings)
    with np.load(folder / "out.npz") as found:
        return found["logits"], found["mtp_logits"]


def test_the_engine_computes_what_the_checkpoint_means(
    run: Path, arrays: Arrays, tmp_path: Path
) -> None:
    convert.write(run, tmp_path / "f32.gguf", "f32")
    tokens = np.random.default_rng(1).integers(0, V, 40).tolist()
    reference = Reference({name: array.astype(np.float64) for name, array in arrays.items()})
    for ours, meant in zip(
        engine_logits(tmp_path / "f32.gguf", tokens, tmp_path),
        reference.logits(tokens),
        strict=True,
    ):
        assert meant.std() > 0.5  # logits that say something
        assert np.abs(ours - meant).max() < 1e-3


def test_the_file_has_what_a_qwen35moe_file_has(run: Path, tmp_path: Path, data_dir: Path) -> None:
    convert.write(run, tmp_path / "guide.gguf", "guide")
    ours = gguf.GGUFReader(tmp_path / "guide.gguf")
    golden = gguf.GGUFReader(data_dir / "models" / "qwen35moe-ud-q4k.gguf")
    assert {tensor.name for tensor in ours.tensors} == {tensor.name for tensor in golden.tensors}
    optional = {"tokenizer.ggml.bos_token_id"}  # an id that nothing adds
    assert set(golden.fields) - set(ours.fields) <= optional
    for name in ("qwen35moe.block_count", "qwen35moe.nextn_predict_layers"):
        assert ours.fields[name].contents() == golden.fields[name].contents()
        assert ours.fields[name].types == golden.fields[name].types


def test_the_mix_of_the_bundled_file(run: Path, tmp_path: Path) -> None:
    convert.write(run, tmp_path / "guide.gguf", "guide")
    kinds = {t.name: t.tensor_type for t in gguf.GGUFReader(tmp_path / "guide.gguf").tensors}
    assert kinds["blk.0.ffn_down_exps.weight"] is Kind.Q4_K
    assert kinds["blk.3.attn_q.weight"] is Kind.Q6_K
    assert kinds["output.weight"] is Kind.Q5_K
    for exact in ("ffn_gate_inp.weight", "attn_norm.weight", "ssm_a", "ssm_conv1d.weight"):
        assert kinds[f"blk.0.{exact}"] is Kind.F32


def test_the_way_back_gives_the_same_weights(run: Path, arrays: Arrays, tmp_path: Path) -> None:
    convert.write(run, tmp_path / "f32.gguf", "f32")
    back = convert.checkpoint_arrays(tmp_path / "f32.gguf", CONFIG)
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_allclose(back[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
