"""Reads a model's shape from its header and tensor table, by the names tensors go by.

Generic over families: a layer is what its tensors say. The groups are those of
`engine/tensor_groups.py`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Protocol

from stratadesk.engine.hyperparameters import Hyperparameters, Metadata
from stratadesk.engine.tensor_groups import TensorGroups
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.plan_settings import DEFAULT_CONTEXT
from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    LayerShape,
    ModelShape,
)
from stratadesk.errors import GgufError

_BLOCK = re.compile(r"blk\.(\d{1,9})\.(.+)")
_ON_THE_HOST = ("token_embd.", "per_layer_token_embd.", "nextn.embed_tokens.")
_OUTPUTS = ("attn_output.", "ssm_out.")


class TensorFacts(Protocol):
    """A line of the tensor table: row-major shape and stored bytes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Row-major shape."""

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""


Table = Mapping[str, TensorFacts]


class ModelHeader(Metadata, Protocol):
    """What is needed of an open model; `GgufFile` is one."""

    @property
    def tensors(self) -> Table:
        """All tensors by name."""


def read_shape(header: ModelHeader) -> ModelShape:
    """Return the shape of an open model.

    Raises:
        GgufError: the header lacks a hyperparameter or contradicts its tensor table.
    """
    numbers = Hyperparameters(header)
    blocks, rest = _split(header.tensors, numbers)
    groups = TensorGroups(header.tensors, len(blocks))
    layers = tuple(
        _layer(numbers, {f"blk.{index}.{part}": block[part] for part in block}, groups)
        for index, block in enumerate(blocks)
    )
    trunk = len(blocks) - numbers.natural("nextn_predict_layers", default=0)
    if trunk < 1:
        raise GgufError(f"{numbers.key('nextn_predict_layers')} leaves none of {len(blocks)}.")
    head, embedding = _named(rest, "output."), _named(rest, "token_embd.")
    hosted, own_head = _named(rest, *_ON_THE_HOST), _bytes(head)
    name = header.metadata.get("general.name")
    return ModelShape(
        name=name if isinstance(name, str) else numbers.architecture,
        architecture=numbers.architecture,
        width=numbers.positive("embedding_length"),
        vocab=max((facts.shape[0] for facts in embedding if facts.shape), default=0),
        context=numbers.positive("context_length", default=DEFAULT_CONTEXT),
        rotated=_rotated(numbers),
        head_bytes=own_head or _bytes(embedding),
        embedding_bytes=_bytes(hosted) - (0 if own_head else _bytes(embedding)),
        other_bytes=_bytes(rest.values()) - own_head - _bytes(hosted),
        tied=not own_head,
        layers=layers[:trunk],
        draft=layers[trunk:],
    )


def _split(tensors: Table, numbers: Hyperparameters) -> tuple[list[dict[str, TensorFacts]], Table]:
    """Sort tensors into blocks, by the rest of their names, and those outside all blocks."""
    count = numbers.positive("block_count")
    if count > len(tensors):
        raise GgufError(f"{numbers.key('block_count')} is {count}, of {len(tensors)} tensors.")
    blocks: list[dict[str, TensorFacts]] = [{} for _ in range(count)]
    rest = {}
    for name, facts in tensors.items():
        match = _BLOCK.fullmatch(name)
        if match and int(match[1]) < count:
            blocks[int(match[1])][match[2]] = facts
        else:
            rest[name] = facts
    return blocks, rest


def _layer(numbers: Hyperparameters, tensors: Table, groups: TensorGroups) -> LayerShape:
    by_group: dict[str, dict[str, TensorFacts]] = {}
    for name, facts in tensors.items():
        part = name.split(".", 2)[2]
        if not part.startswith(_ON_THE_HOST):
            by_group.setdefault(groups.group_of(name), {})[part] = facts
    experts = by_group.pop("experts", {})
    dense = [facts for group in by_group.values() for facts in group.values()]
    return LayerShape(
        dense_bytes=_bytes(dense),
        dense_values=sum(prod(facts.shape) for facts in dense if len(facts.shape) > 1),
        mixer=_mixer(numbers, by_group),
        feed_forward=_feed_forward(numbers, by_group, experts),
    )


def _mixer(
    numbers: Hyperparameters, groups: Mapping[str, Table]
) -> AttentionShape | DeltaNetShape | None:
    delta = groups.get("delta_net", {})
    if "ssm_conv1d.weight" in delta:
        return _delta_net(numbers, delta)
    attention = groups.get("attention", {})
    return _attention(attention, groups.get("norms", {})) if attention else None


def _attention(tensors: Table, norms: Table) -> AttentionShape:
    rows, inner = _projections(tensors), _columns(tensors, "attn_output.weight")
    query = _rows(tensors, "attn_q.weight")
    keys, values = _rows(tensors, "attn_k.weight"), _rows(tensors, "attn_v.weight")
    if "attn_qkv.weight" in tensors:
        keys = values = max(0, _rows(tensors, "attn_qkv.weight") - inner) // 2
    return AttentionShape(
        projections=rows,
        inner=inner,
        # Latent attention caches its compressed row in place of keys and values.
        keys=keys or _rows(tensors, "attn_kv_a_mqa.weight"),
        values=values,
        gated=query == 2 * inner > 0,
        normed="attn_q_norm.weight" in norms,
    )


def _delta_net(numbers: Hyperparameters, tensors: Table) -> DeltaNetShape:
    convolution = tensors["ssm_conv1d.weight"].shape
    matrices = {name: facts for name, facts in tensors.items() if "conv1d" not in name}
    return DeltaNetShape(
        projections=_projections(matrices),
        inner=_columns(tensors, "ssm_out.weight"),
        channels=convolution[0],
        span=convolution[-1],
        heads=numbers.positive("ssm.time_step_rank"),
        size=numbers.positive("ssm.state_size"),
    )


def _feed_forward(
    numbers: Hyperparameters, groups: Mapping[str, Table], experts: Table
) -> FeedForwardShape:
    shared, other = groups.get("shared_experts", {}), groups.get("other", {})
    dense = _columns(shared, "ffn_down_shexp.weight") or _columns(other, "ffn_down.weight")
    if not experts:
        return FeedForwardShape(dense)
    count = next(iter(experts.values())).shape[0]
    if not count or any(facts.shape[0] != count for facts in experts.values()):
        raise GgufError(f"The expert tensors {', '.join(experts)} differ in their experts.")
    return FeedForwardShape(
        dense=dense,
        experts=count,
        used=min(count, numbers.positive("expert_used_count")),
        inner=_columns(experts, "ffn_down_exps.weight"),
        expert_bytes=sum(aligned(-(-facts.n_bytes // count)) for facts in experts.values()),
        expert_values=sum(prod(facts.shape[1:]) for facts in experts.values()),
    )


def _rotated(numbers: Hyperparameters) -> int:
    heads = numbers.positive("attention.head_count", default=1)
    size = numbers.positive("embedding_length") // heads
    size = numbers.positive("attention.key_length", default=max(1, size))
    return numbers.positive("rope.dimension_count", default=size)


def _projections(tensors: Table) -> tuple[int, ...]:
    return tuple(
        facts.shape[0]
        for name, facts in tensors.items()
        if len(facts.shape) == 2 and not name.startswith(_OUTPUTS)
    )


def _rows(tensors: Table, name: str) -> int:
    return tensors[name].shape[0] if name in tensors else 0


def _columns(tensors: Table, name: str) -> int:
    return tensors[name].shape[-1] if name in tensors else 0


def _named(tensors: Table, *prefixes: str) -> Sequence[TensorFacts]:
    return [facts for name, facts in tensors.items() if name.startswith(prefixes)]


def _bytes(tensors: Iterable[TensorFacts]) -> int:
    return sum(aligned(facts.n_bytes) for facts in tensors)
