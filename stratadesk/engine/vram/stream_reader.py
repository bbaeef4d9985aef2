"""Reads what hyper-connections and n-gram embeddings need; see `shape_reader`."""

from collections.abc import Mapping

from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.vram.shape import NgramShape, StreamShape
from stratadesk.engine.vram.tensor_facts import Table


def stream_shape(numbers: Hyperparameters, outside: Table) -> StreamShape | None:
    """Return the residual streams, None for a single one; `outside` are tensors of no block."""
    if "output_hc_down.weight" not in outside:
        return None
    return StreamShape(
        count=numbers.positive("hyper_connection.count"),
        rank=numbers.positive("hyper_connection.low_rank"),
    )


def ngram_shape(numbers: Hyperparameters, groups: Mapping[str, Table]) -> NgramShape | None:
    """Return the n-gram embedding of a layer whose tensors are sorted by group, None for none."""
    convolution = groups.get("other", {}).get("ple_conv1d.weight")
    if convolution is None:
        return None
    length = numbers.positive("ple.ngram_size")
    return NgramShape(
        heads=numbers.positive("ple.heads_per_ngram") * max(0, length - 1),
        length=length,
        past=(convolution.shape[-1] - 1) * length,
        channels=convolution.shape[0],
    )
