"""What every model family offers the engine, and the parts layers are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, RopeTable, Tensor


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the tokens of one pass stand: from position `start` on, with their RoPE angles."""

    start: int
    rope: RopeTable


class Mixer(Protocol):
    """The first half of a layer: attention or a delta net."""

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """Empty state for one sequence of at most `context` tokens."""

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; advances `state` by the chunk."""


class FeedForward(Protocol):
    """The second half of a layer: a dense feed-forward or a mixture of experts."""

    def __call__(self, ops: Ops, h: Tensor) -> Tensor:
        """[T, E] → [T, E]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A pre-norm residual layer: x += mixer(norm(x)); x += feed_forward(norm(x))."""

    mixer_norm: Tensor
    mixer: Mixer
    feed_forward_norm: Tensor
    feed_forward: FeedForward


class Family(Protocol):
    """A loaded model: weights in a backend, and its forward pass."""

    layers: Sequence[Layer]
    vocab_size: int

    def __init__(self, header: Hyperparameters, table: TensorTable, vocab_size: int) -> None:
        """Take all tensors from `table`; raises GgufError or UnsupportedModelError."""

    def hidden(
        self,
        ops: Ops,
        tokens: npt.NDArray[np.int32],
        start: int,
        layers: Sequence[LayerState],
    ) -> Tensor:
        """States after the output norm, [T, E]; advances `layers` by the chunk."""

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""
