"""Reads what the first half of a layer needs from its tensors; see `shape_reader`."""

from collections.abc import Mapping

from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.vram.mixer_shapes import (
    AttentionShape,
    DeltaNetShape,
    IndexerShape,
    LatentShape,
    MixerShape,
)
from stratadesk.engine.vram.tensor_facts import Table, columns_of, rows_of
from stratadesk.engine.windows import window_of

_NO_PROJECTIONS = ("attn_output.", "ssm_out.", "indexer.")


def mixer_shape(
    numbers: Hyperparameters, index: int, groups: Mapping[str, Table]
) -> MixerShape | None:
    """Return the mixer of layer `index`, whose tensors are sorted by group; None for none.

    Raises GgufError when the header lacks a number of it.
    """
    delta = groups.get("delta_net", {})
    if "ssm_conv1d.weight" in delta:
        return _delta_net(numbers, delta)
    attention, norms = groups.get("attention", {}), groups.get("norms", {})
    if "attn_kv_a_mqa.weight" in attention:
        return _latent(numbers, attention, norms)
    return _attention(numbers, index, attention, norms) if attention else None


def _attention(
    numbers: Hyperparameters, index: int, tensors: Table, norms: Table
) -> AttentionShape:
    inner = columns_of(tensors, "attn_output.weight")
    query = rows_of(tensors, "attn_q.weight")
    keys, values = rows_of(tensors, "attn_k.weight"), rows_of(tensors, "attn_v.weight")
    if "attn_qkv.weight" in tensors:
        keys = values = max(0, rows_of(tensors, "attn_qkv.weight") - inner) // 2
    return AttentionShape(
        projections=_projections(tensors),
        inner=inner,
        keys=keys,
        values=values,
        gated=query == 2 * inner > 0,
        normed="attn_q_norm.weight" in norms,
        indexer=_indexer(numbers, index, tensors),
        window=window_of(numbers, index),
        kv_heads=_kv_heads(numbers),
    )


def _kv_heads(numbers: Hyperparameters) -> int:
    heads = numbers.positive("attention.head_count", default=1)
    return numbers.positive("attention.head_count_kv", default=heads)


def _indexer(numbers: Hyperparameters, index: int, tensors: Table) -> IndexerShape | None:
    sizes = numbers.integers("attention.compress_ratios")
    block = sizes[index] if index < len(sizes) else 0
    if block < 1 or "indexer.q_proj.weight" not in tensors:
        return None
    return IndexerShape(
        heads=numbers.positive("attention.indexer.head_count"),
        size=numbers.positive("attention.indexer.key_length"),
        block=block,
        budget=numbers.positive("attention.indexer.top_k") + block - 1,
    )


def _latent(numbers: Hyperparameters, tensors: Table, norms: Table) -> LatentShape:
    heads = numbers.positive("attention.head_count")
    rank = rows_of(tensors, "attn_q_a.weight")
    query = rows_of(tensors, "attn_q_b.weight" if rank else "attn_q.weight")
    latent = rows_of(norms, "attn_kv_a_norm.weight")
    rotated = max(0, rows_of(tensors, "attn_kv_a_mqa.weight") - latent)
    return LatentShape(
        heads=heads,
        rank=rank,
        plain=max(0, query // heads - rotated),
        rotated=rotated,
        latent=latent,
        value=columns_of(tensors, "attn_output.weight") // heads,
        transposed="attn_kv_b.weight" in tensors,
    )


def _delta_net(numbers: Hyperparameters, tensors: Table) -> DeltaNetShape:
    convolution = tensors["ssm_conv1d.weight"].shape
    matrices = {name: facts for name, facts in tensors.items() if "conv1d" not in name}
    return DeltaNetShape(
        projections=_projections(matrices),
        inner=columns_of(tensors, "ssm_out.weight"),
        channels=convolution[0],
        span=convolution[-1],
        heads=numbers.positive("ssm.time_step_rank"),
        size=numbers.positive("ssm.state_size"),
        split=rows_of(tensors, "ssm_ba.weight"),
    )


def _projections(tensors: Table) -> tuple[int, ...]:
    return tuple(
        facts.shape[0]
        for name, facts in tensors.items()
        if len(facts.shape) == 2 and not name.startswith(_NO_PROJECTIONS)
    )
