"""What every group of host operations stands on: where their results are placed."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.experts import ExpertSupplier, MappedExperts
from stratadesk.kernels.host.weights import HostWeight, multiply
from stratadesk.kernels.host.workspace import HeapWorkspace, Workspace

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

_ONE_TOKEN = np.zeros(1, np.int32), np.array([0, 1], np.int32)


def in_order(tokens: int) -> tuple[Ints, Ints]:
    """Order and starts for a matrix that all tokens go through; not to be changed."""
    if tokens == 1:
        return _ONE_TOKEN
    return np.arange(tokens, dtype=np.int32), np.array([0, tokens], np.int32)


@dataclass(frozen=True, slots=True)
class HostRope:
    """Cosine and sine [T, pairs] for the tokens of a chunk."""

    cos: Floats
    sin: Floats


class OpsBase:
    """Results are placed in `workspace`; what outlives a pass, such as states, in `resident`.

    `supplier` says where experts lie.
    """

    def __init__(self) -> None:
        self.workspace: Workspace = HeapWorkspace()
        self.resident: Workspace = HeapWorkspace()
        self.supplier: ExpertSupplier = MappedExperts()

    def beside(self) -> AbstractContextManager[None]:
        """All threads work on one operation at a time: nothing runs beside another."""
        return nullcontext()

    def meet(self) -> None:
        """Nothing: what was computed in `beside` is done."""

    def scope(self) -> AbstractContextManager[None]:
        """Give back at its end what was made inside it."""
        scope: AbstractContextManager[None] = self.workspace.scope()
        return scope

    def embed(self, weight: HostWeight, tokens: Ints) -> Floats:
        """Rows `tokens` of a matrix, [T, columns]."""
        out = self._empty(tokens.size, weight.columns)
        self._decode_rows(weight, tokens, out)
        return out

    def linear(self, weight: HostWeight, x: Floats) -> Floats:
        """x · Wᵀ, [T, rows]."""
        out = self._empty(x.shape[0], weight.rows)
        self._multiply(weight, x, out)
        return out

    def _decode_rows(self, weight: HostWeight, rows: Ints, out: Floats) -> None:
        """Write the rows of a matrix to out [rows, columns]."""
        weight.format.rows(weight.data, weight.row_units, rows, out)

    def _multiply(self, weight: HostWeight, x: Floats, out: Floats) -> None:
        """Write x · Wᵀ to out [T, rows]."""
        multiply(weight, weight.first, x, 1, in_order(x.shape[0]), out, 0)

    def _empty(self, *shape: int) -> Floats:
        return self.workspace.empty(shape, np.float32)
