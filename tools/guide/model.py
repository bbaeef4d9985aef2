"""The guide in PyTorch: a small Qwen3.5 mixture of experts, and the block that drafts tokens.

`transformers` has the trunk (`Qwen3_5MoeForCausalLM`); the draft block is built here from the
trunk's own parts, wired as `stratadesk/engine/architectures/draft.py` wires it.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import (
    Qwen3_5MoeDecoderLayer,
    Qwen3_5MoeRMSNorm,
)


@dataclass(frozen=True)
class Sizes:
    """The shape of a guide. Rows that K-quants hold are multiples of 256 values."""

    width: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    experts: int = 16
    used: int = 4
    expert_width: int = 256
    key_heads: int = 4
    value_heads: int = 8
    state: int = 64
    context: int = 2048


TINY = Sizes(layers=4, experts=4, used=2, key_heads=2, value_heads=4)
"""One full-attention layer behind three delta nets; trains on a CPU."""

ROPE_SECTIONS = [3, 3, 2]
"""Pairs of the three position streams; for text all three hold the token's position."""


def config_of(sizes: Sizes, vocabulary: int) -> Any:
    """The `transformers` configuration of a guide of these sizes."""
    return Qwen3_5MoeTextConfig(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_size,
        linear_key_head_dim=sizes.state,
        linear_value_head_dim=sizes.state,
        linear_num_key_heads=sizes.key_heads,
        linear_num_value_heads=sizes.value_heads,
        moe_intermediate_size=sizes.expert_width,
        shared_expert_intermediate_size=sizes.expert_width,
        num_experts=sizes.experts,
        num_experts_per_tok=sizes.used,
        max_position_embeddings=sizes.context,
        tie_word_embeddings=False,
        use_cache=False,
        output_router_logits=True,
        router_aux_loss_coef=0.01,
        layer_types=[
            "full_attention" if (i + 1) % 4 == 0 else "linear_attention"
            for i in range(sizes.layers)
        ],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": ROPE_SECTIONS,
            "mrope_interleaved": True,
        },
    )


class _HalfUnderAutocast(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Gives expert weights in bfloat16 where autocast would: grouped products are not on its list.

    The parameter itself, which the optimizer changes, stays float32.
    """

    def forward(self, weight: Any) -> Any:
        return weight.to(torch.bfloat16) if torch.is_autocast_enabled("cuda") else weight


class DraftBlock(nn.Module):  # type: ignore[misc]
    """Predicts the token at t + 1 from token t and the trunk's normed state at t - 1."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        own = copy.deepcopy(config)
        own.num_hidden_layers, own.layer_types = 1, ["full_attention"]
        width, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = Qwen3_5MoeRMSNorm(width, eps=eps)
        self.hnorm = Qwen3_5MoeRMSNorm(width, eps=eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        self.block = Qwen3_5MoeDecoderLayer(own, 0)
        self.norm = Qwen3_5MoeRMSNorm(width, eps=eps)

    def forward(self, embedded: Any, before: Any, angles: tuple[Any, Any]) -> Any:
        """States after the block's norm, [B, T, E], from embeddings and states of that shape."""
        joined = torch.cat((self.enorm(embedded), self.hnorm(before)), dim=-1)
        x = self.eh_proj(joined)
        return self.norm(self.block(x, position_embeddings=angles))


@dataclass
class Outputs:
    """Logits of trunk and draft block, both [B, T, V], and each router's logits, [B·T, N]."""

    logits: Any
    drafted: Any
    routers: list[Any]


class Guide(nn.Module):  # type: ignore[misc]
    """Trunk and draft block; embedding and head are shared between them."""

    def __init__(self, sizes: Sizes, vocabulary: int, experts: str = "grouped_mm") -> None:
        super().__init__()
        self.config = config_of(sizes, vocabulary)
        self.trunk = Qwen3_5MoeForCausalLM(self.config)
        self.trunk.set_experts_implementation(experts)
        self.draft = DraftBlock(self.trunk.config)
        self.draft.apply(self.trunk._init_weights)
        for layer in (*self.trunk.model.layers, self.draft.block):
            for name in ("gate_up_proj", "down_proj"):
                nn.utils.parametrize.register_parametrization(
                    layer.mlp.experts, name, _HalfUnderAutocast()
                )

    def forward(self, ids: Any) -> Outputs:
        """Read token ids, int64 [B, T]; every row starts at position 0 with an empty state.

        Rows are padded on the right: what follows a token never reaches it.
        """
        model = self.trunk.model
        # Given, they are not searched for joined rows, for whose number the host would wait.
        positions = torch.arange(ids.shape[1], device=ids.device).expand(3, ids.shape[0], -1)
        states = model(input_ids=ids, position_ids=positions, output_router_logits=True)
        hidden = states.last_hidden_state
        before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1]), dim=1)
        routers: list[Any] = list(states.router_logits)
        gate = self.draft.block.mlp.gate.register_forward_hook(
            lambda _module, _given, made: routers.append(made[0])
        )
        angles = model.rotary_emb(hidden, positions)
        drafted = self.draft(model.embed_tokens(ids), before, angles)
        gate.remove()
        head = self.trunk.lm_head
        return Outputs(head(hidden), head(drafted), routers)

    def arrays(self) -> dict[str, Any]:
        """All weights as float32 NumPy arrays, under the checkpoint's names and `draft.*`."""
        found = {}
        for name, value in self.state_dict().items():
            plain = name.removeprefix("trunk.").replace("parametrizations.", "")
            found[plain.removesuffix(".original")] = value.detach().float().cpu().numpy()
        return found

    def load_arrays(self, arrays: dict[str, Any]) -> None:
        """Take weights as `arrays` names them, for instance read back from a quantized file."""
        state = self.state_dict()
        for name in state:
            plain = name.removeprefix("trunk.").replace("parametrizations.", "")
            state[name] = torch.from_numpy(
                np.array(arrays[plain.removesuffix(".original")], np.float32)
            )
        self.load_state_dict(state)
