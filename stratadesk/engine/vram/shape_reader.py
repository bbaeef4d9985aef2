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
from stratadesk.engine.vram.mixer_reader import mixer_shape
from stratadesk.engine.vram.plan_settings import DEFAULT_CONTEXT
from stratadesk.engine.vram.shape import FeedForwardShape, LayerShape, ModelShape
from stratadesk.engine.vram.stream_reader import ngram_shape, stream_shape
from stratadesk.engine.vram.tensor_facts import Table, TensorFacts, columns_of
from stratadesk.errors import GgufError

_BLOCK = re.compile(r"blk\.(\d{1,9})\.(.+)")
_ON_THE_HOST = ("token_embd.", "per_layer_token_embd.", "nextn.embed_tokens.")


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
    layers = tuple(_layer(numbers, index, block, groups) for index, block in enumerate(blocks))
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
        streams=stream_shape(numbers, rest),
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


def _layer(
    numbers: Hyperparameters, index: int, tensors: Table, groups: TensorGroups
) -> LayerShape:
    by_group: dict[str, dict[str, TensorFacts]] = {}
    for part, facts in tensors.items():
        if not part.startswith(_ON_THE_HOST):
            group = groups.group_of(f"blk.{index}.{part}")
            by_group.setdefault(group, {})[part] = facts
    # The biases of experts are small and stay on the card; only their matrices come and go.
    of_experts = by_group.pop("experts", {})
    experts = {part: facts for part, facts in of_experts.items() if part.endswith(".weight")}
    biases = [facts for part, facts in of_experts.items() if part not in experts]
    dense = [facts for group in by_group.values() for facts in group.values()]
    return LayerShape(
        dense_bytes=_bytes(dense) + _bytes(biases),
        dense_values=sum(prod(facts.shape) for facts in dense if len(facts.shape) > 1),
        mixer=mixer_shape(numbers, index, by_group),
        feed_forward=_feed_forward(numbers, by_group, experts),
        ngrams=ngram_shape(numbers, by_group),
    )


def _feed_forward(
    numbers: Hyperparameters, groups: Mapping[str, Table], experts: Table
) -> FeedForwardShape:
    shared, other = groups.get("shared_experts", {}), groups.get("other", {})
    dense = columns_of(shared, "ffn_down_shexp.weight") or columns_of(other, "ffn_down.weight")
    if not experts:
        return FeedForwardShape(dense)
    count = next(iter(experts.values())).shape[0]
    if not count or any(facts.shape[0] != count for facts in experts.values()):
        raise GgufError(f"The expert tensors {', '.join(experts)} differ in their experts.")
    return FeedForwardShape(
        dense=dense,
        experts=count,
        used=min(count, numbers.positive("expert_used_count")),
        inner=columns_of(experts, "ffn_down_exps.weight"),
        expert_bytes=sum(aligned(-(-facts.n_bytes // count)) for facts in experts.values()),
        expert_values=sum(prod(facts.shape[1:]) for facts in experts.values()),
    )


def _rotated(numbers: Hyperparameters) -> int:
    heads = numbers.positive("attention.head_count", default=1)
    size = numbers.positive("embedding_length") // heads
    size = numbers.positive("attention.key_length", default=max(1, size))
    return numbers.positive("rope.dimension_count", default=size)


def _named(tensors: Table, *prefixes: str) -> Sequence[TensorFacts]:
    return [facts for name, facts in tensors.items() if name.startswith(prefixes)]


def _bytes(tensors: Iterable[TensorFacts]) -> int:
    return sum(aligned(facts.n_bytes) for facts in tensors)
