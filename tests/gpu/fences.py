"""Fences between tensors: bytes that nothing may write, looked at after everything was computed.

A memory checker sees one arena and no tensor in it. Here each tensor is followed by poisoned
bytes, and no place is used twice, so that whatever was written beyond a tensor is still seen.
What is read beyond one is a NaN and ends in wrong logits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from stratadesk.engine import cuda_loading
from stratadesk.kernels.cuda.memory import POISON
from stratadesk.kernels.cuda.tensors import LINE, DeviceTensor, DeviceWorkspace

PASSES = 12
"""Passes that have room at once: one a captured graph, which keeps its places."""


class Fenced(DeviceWorkspace):
    """A workspace whose tensors stand apart and are never given back."""

    made: list["Fenced"]
    """All of them; those of a dry pass have the address 0 and ask for room for `PASSES`."""

    def __init__(self, address: int, size: int) -> None:
        super().__init__(address, size)
        self.fences: list[tuple[int, int]] = []
        self.made.append(self)

    def take(self, n_bytes: int) -> int:
        """The address of `n_bytes` more, with a fence behind them."""
        apart = -(-n_bytes // 4) * 4 + LINE
        address = super().take(apart)
        if not self.address:
            self.peak = PASSES * self.used
        behind = address + apart - LINE
        self.fences.append((behind, LINE))
        return address

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give nothing back."""
        yield


def fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have models loaded from now on stand in fenced workspaces."""
    monkeypatch.setattr(Fenced, "made", [], raising=False)
    monkeypatch.setattr(cuda_loading, "DeviceWorkspace", Fenced)


def broken(ops: Any) -> list[str]:
    """The fences that something was written over, with their workspace and place."""
    found = []
    for number, space in enumerate(Fenced.made):
        for address, n_bytes in space.fences if space.address else ():
            words = ops.download(DeviceTensor(address, (1, n_bytes // 4))).view(np.uint8)
            if (words != POISON).any():
                found.append(f"workspace {number}, byte {address - space.address:,}")
    return found
