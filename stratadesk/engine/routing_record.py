"""Which experts a model's tokens were routed to, in order, and what that says of its layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

MOST = 0.9
"""The share of all uses for which experts are counted."""


@dataclass(frozen=True, slots=True)
class LayerUse:
    """How a layer's experts were used: `counts` [experts], uses of each."""

    counts: npt.NDArray[np.int64]

    @property
    def uses(self) -> int:
        """Uses of all experts together."""
        return int(self.counts.sum())

    @property
    def most_used(self) -> int:
        """The expert used most, of equal ones the first."""
        return int(self.counts.argmax())

    @property
    def top_share(self) -> float:
        """Share of the uses that the most used expert has, 0 without any."""
        return float(self.counts.max()) / self.uses if self.uses else 0.0

    @property
    def for_most(self) -> int:
        """How many experts, the most used first, have at least `MOST` of the uses."""
        sums = np.cumsum(np.sort(self.counts)[::-1])
        # In whole numbers: a share as a float might be missed by a rounding.
        return int(np.searchsorted(sums * 10, self.uses * round(MOST * 10))) + 1 if self.uses else 0

    @property
    def entropy(self) -> float:
        """Entropy of the uses in bits, at most log2 of the number of experts."""
        shares = self.counts[self.counts > 0] / max(self.uses, 1)
        return float(-(shares * np.log2(shares)).sum()) + 0.0

    @property
    def evenness(self) -> float:
        """Entropy as a share of that of even use, from 0 to 1."""
        return self.entropy / math.log2(self.counts.size) if self.counts.size > 1 else 1.0


class RoutingRecord:
    """The experts of every token in every layer that has any, in the order of computing.

    `note` is what `LoadedModel.watch_routing` takes.
    """

    def __init__(self, layers: int) -> None:
        self._parts: list[list[Ints]] = [[] for _ in range(layers)]

    def note(self, layer: int, experts: Ints) -> None:
        """Keep a copy of the experts [tokens, used] of a chunk in `layer`, best first."""
        self._parts[layer].append(experts.copy())

    @property
    def tokens(self) -> int:
        """Tokens that were routed."""
        return sum(len(part) for part in self._parts[0]) if self._parts else 0

    def layers(self) -> list[Ints]:
        """Return the experts of each layer, [tokens, used]."""
        return [
            np.concatenate(parts) if parts else np.zeros((0, 0), np.int32) for parts in self._parts
        ]

    def use(self, experts: Sequence[int]) -> list[LayerUse]:
        """Count the uses in each layer, which has so many `experts`."""
        return [
            LayerUse(np.bincount(routed.reshape(-1), minlength=count))
            for routed, count in zip(self.layers(), experts, strict=True)
        ]
