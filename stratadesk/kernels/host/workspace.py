"""Where the host's intermediate tensors live: a stack in a given piece of memory, or the heap."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

LINE = 64
"""Tensors begin at multiples of a cache line, counted in bytes from the workspace's start."""


class Workspace(Protocol):
    """Gives memory for tensors; what was made inside a `scope` is given back at its end."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An undefined C-contiguous array."""

    def scope(self) -> Any:
        """A context manager."""


class HeapWorkspace:
    """Takes every tensor from the heap; for single operations outside an engine."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An undefined C-contiguous array."""
        return np.empty(shape, dtype)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Do nothing: the heap gives back what is no longer used."""
        yield


class StackWorkspace:
    """Places tensors one behind the other in `memory`, a uint8 array; no allocation at all.

    `peak` is the largest number of bytes that were in use at once.
    """

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self._memory = memory
        self._used = 0
        self.peak = 0

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An undefined C-contiguous array.

        Raises RuntimeError with both sizes when the workspace is full: a plan that reserved too
        little.
        """
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        end = self._used + size
        if end > self._memory.size:
            raise RuntimeError(f"a workspace of {self._memory.size} bytes cannot hold {end}")
        array: npt.NDArray[Any] = np.ndarray(shape, kind, self._memory, self._used)
        self._used = -(-end // LINE) * LINE
        self.peak = max(self.peak, end)
        return array

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back, at the end of the `with` block, what was made in it."""
        used = self._used
        try:
            yield
        finally:
            self._used = used
