"""Experts on the host: their weights, where each lies, and the routed feed-forward."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.expert_form import PLAIN_EXPERTS, ExpertForm
from stratadesk.kernels.host.weights import HostWeight

Ints = npt.NDArray[np.int32]
Addresses = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HostExpertLayer:
    """The experts of one layer: `parts` are gate and up (or both fused), then down.

    `index` counts the layers that have experts.
    """

    index: int
    parts: tuple[HostWeight, ...]
    form: ExpertForm = PLAIN_EXPERTS


@dataclass(frozen=True, slots=True)
class HostRouting:
    """K experts per token with their weights, and the T·K entries sorted by expert.

    `experts` and `weights` are [T, K]; `order` [T·K] lists entries t·K + k; `groups` are the
    distinct experts, each owning order[starts[g] : starts[g + 1]].
    """

    experts: Ints
    weights: npt.NDArray[np.float32]
    order: Ints
    groups: Ints
    starts: Ints

    def only(self, positions: Sequence[int]) -> tuple[Ints, Ints]:
        """Order and starts of the groups at `positions` alone."""
        if len(positions) == self.groups.size:
            return self.order, self.starts
        runs = [self.order[self.starts[p] : self.starts[p + 1]] for p in positions]
        bounds = np.cumsum([0, *(run.size for run in runs)], dtype=np.int32)
        return np.concatenate(runs), bounds


@dataclass(frozen=True, slots=True)
class Supply:
    """Experts that can be read now: the groups at `positions`, and each part's addresses."""

    positions: Sequence[int]
    addresses: Sequence[Addresses]


class ExpertSupplier(Protocol):
    """Says where the bytes of experts lie."""

    def supply(self, layer: HostExpertLayer, chosen: HostRouting) -> Iterator[Supply]:
        """Yield every one of the distinct experts of `chosen` once.

        A supply stays valid until the next one is asked for.
        """


class MappedExperts:
    """Reads every expert where the weights were given, such as the mapped file."""

    def supply(self, layer: HostExpertLayer, chosen: HostRouting) -> Iterator[Supply]:
        """Yield all experts at once."""
        addresses = [part.addresses(chosen.groups) for part in layer.parts]
        yield Supply(range(chosen.groups.size), addresses)
