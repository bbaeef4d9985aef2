"""What every model family offers the engine, and the parts layers are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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


class Stateful(Protocol):
    """A layer of any make: its mixer knows what the layer keeps between chunks."""

    @property
    def mixer(self) -> Mixer:
        """The first half of the layer."""


class Drafter(Protocol):
    """A block that drafts the token after the next one, from a token and the state before it."""

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """Empty KV cache for one sequence of at most `context` tokens."""

    def hidden(
        self,
        ops: Ops,
        tokens: npt.NDArray[np.int32],
        before: Tensor,
        start: int,
        state: LayerState,
    ) -> Tensor:
        """States after its norm, [T, E], of tokens at `start`; `before` [T, E] are those before.

        `before` comes from the trunk's `hidden`, or in a chain of drafts from this very method.
        """

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""


class Family(Protocol):
    """A loaded model: weights in a backend, and its forward pass.

    `kernels` names the backend's modules of kernels that only some families need.
    """

    kernels: ClassVar[Sequence[str]]
    vocab_size: int
    width: int

    @property
    def layers(self) -> Sequence[Stateful]:
        """The layers of the trunk, in order."""

    @property
    def draft(self) -> Drafter | None:
        """The draft head, if the model has one and it was asked for."""

    def __init__(
        self, header: Hyperparameters, table: TensorTable, vocab_size: int, *, mtp: bool = False
    ) -> None:
        """Take all tensors from `table`, those of the draft block only with `mtp`.

        Raises GgufError or UnsupportedModelError.
        """

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
