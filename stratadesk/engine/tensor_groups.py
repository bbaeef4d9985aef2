"""What each tensor of a model is for, told from its name."""

import re
from collections.abc import Iterable

GROUPS: tuple[str, ...] = (
    "embedding",
    "head",
    "attention",
    "delta_net",
    "experts",
    "shared_experts",
    "router",
    "norms",
    "mtp",
    "other",
)
"""All groups, in the order they are shown."""

_BLOCK = re.compile(r"blk\.(\d{1,9})\.(.+)")
_EMBEDDINGS = ("token_embd", "per_layer_token_embd")
_NAMED_LIKE_ATTENTION = re.compile(r"attn_(qkv|gate)\b")
_RULES = tuple(
    (re.compile(pattern), group)
    for pattern, group in (
        (r".*norm", "norms"),
        (r"\w+_shexp\b", "shared_experts"),
        (r"\w+_exps\b", "experts"),
        (r"(ffn_gate_inp|exp_probs_b)\b", "router"),
        (r"ssm_", "delta_net"),
        (r"attn_|indexer", "attention"),
    )
)
"""The first pattern that a name within a block starts with decides."""


class TensorGroups:
    """Sorts the tensors of one model; `names` are all of them, `trunk_layers` excludes MTP."""

    def __init__(self, names: Iterable[str], trunk_layers: int) -> None:
        self._trunk_layers = trunk_layers
        blocks = (_BLOCK.fullmatch(name) for name in names)
        self._delta_net_layers = frozenset(
            int(block[1]) for block in blocks if block and block[2].startswith("ssm_")
        )

    def group_of(self, name: str) -> str:
        """Return the group, one of `GROUPS`, that the tensor `name` belongs to."""
        block = _BLOCK.fullmatch(name)
        if block is None:
            return _group_outside_blocks(name)
        layer, part = int(block[1]), block[2]
        if 0 < self._trunk_layers <= layer or part.startswith("nextn."):
            return "mtp"
        if layer in self._delta_net_layers and _NAMED_LIKE_ATTENTION.match(part):
            return "delta_net"
        return next((group for pattern, group in _RULES if pattern.match(part)), "other")


def _group_outside_blocks(name: str) -> str:
    base = name.split(".", 1)[0]
    if base in _EMBEDDINGS:
        return "embedding"
    if base == "output":
        return "head"
    return "norms" if "norm" in base else "other"
