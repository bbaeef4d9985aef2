"""What an expert computes besides its three products; the same facts for every backend."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Activation(StrEnum):
    """What becomes of gate g and up u.

    SWIGLU: silu(g) · u. CLAMPED: g · sigmoid(1.702 g) · (u + 1), with g at most 7 and u within
    ±7 (gpt-oss).
    """

    SWIGLU = "swiglu"
    CLAMPED = "clamped"


@dataclass(frozen=True, slots=True)
class ExpertBiases:
    """A backend's tensors: gate and up [N, F], down [N, E]; down counts before the weight does."""

    gate: Any
    up: Any
    down: Any


@dataclass(frozen=True, slots=True)
class ExpertForm:
    """The activation of a layer's experts, and their biases or None."""

    activation: Activation = Activation.SWIGLU
    biases: ExpertBiases | None = None


PLAIN_EXPERTS = ExpertForm()
"""down · (silu(gate x) ⊙ (up x))."""
