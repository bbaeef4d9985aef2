"""What a plan knows of a tensor: its shape and its size."""

from collections.abc import Mapping
from typing import Protocol


class TensorFacts(Protocol):
    """A line of the tensor table: row-major shape and stored bytes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Row-major shape."""

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""


Table = Mapping[str, TensorFacts]
"""Tensors by name."""


def rows_of(tensors: Table, name: str) -> int:
    """The first size of a tensor, 0 when it is not there."""
    return tensors[name].shape[0] if name in tensors else 0


def columns_of(tensors: Table, name: str) -> int:
    """The last size of a tensor, 0 when it is not there."""
    return tensors[name].shape[-1] if name in tensors else 0
