"""How a router turns its logits into experts and weights; the same facts for every backend."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class RouterScore(StrEnum):
    """What the weight of a chosen expert is made of.

    SOFTMAX: softmax over all logits. SIGMOID: each logit by itself. SELECTED: softmax over the
    logits of the chosen ones alone.
    """

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    SELECTED = "selected"


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """A token goes to the `used` experts with the largest score plus `selection_bias`.

    `selection_bias` is a backend's tensor [N] or None; weights are made without it: divided by
    their sum when `renormalise`, then times `scale`.
    """

    used: int
    score: RouterScore = RouterScore.SOFTMAX
    renormalise: bool = False
    scale: float = 1.0
    selection_bias: Any = None
