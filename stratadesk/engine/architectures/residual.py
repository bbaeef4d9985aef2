"""The frame of most families: embedding, pre-norm residual layers, output norm, head."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.base import Chunk, Layer
from stratadesk.engine.architectures.draft import DraftHead
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.engine.rope import rope_frequencies
from stratadesk.errors import GgufError, UnsupportedModelError


class ResidualModel:
    """A stack of layers between embedding and head; families fill in `_layer`.

    `kernels` are the backend's modules of kernels besides those that every model needs.
    """

    kernels: ClassVar[Sequence[str]] = ()

    def __init__(
        self, header: Hyperparameters, table: TensorTable, vocab_size: int, *, mtp: bool = False
    ) -> None:
        self.vocab_size = vocab_size
        self.width = header.positive("embedding_length")
        self.eps = norm_epsilon(header)
        self.head_size = header.positive(
            "attention.key_length",
            default=self.width // header.positive("attention.head_count"),
        )
        self.frequencies, self.magnitude = rope_frequencies(header, self.head_size)
        self.embedding = table.weight("token_embd.weight", vocab_size, self.width)
        self.output_norm = table.vector("output_norm.weight", self.width)
        self.head = self.embedding
        if table.has("output.weight"):
            self.head = table.weight("output.weight", vocab_size, self.width)
        trunk, total = block_counts(header)
        self.layers: Sequence[Layer] = tuple(
            self._layer(header, table, index) for index in range(trunk)
        )
        self.draft = self._draft(header, table, range(trunk, total), mtp)

    def _draft(
        self, header: Hyperparameters, table: TensorTable, blocks: range, mtp: bool
    ) -> DraftHead | None:
        """The draft head if it is wanted; else its tensors are set aside."""
        if not mtp:
            for index in blocks:
                table.set_aside(f"blk.{index}.")
            return None
        if len(blocks) != 1:
            raise UnsupportedModelError(
                f"{header.key('nextn_predict_layers')} is {len(blocks)}; this version drafts with "
                "exactly one block.",
                "Leave out --mtp.",
            )
        layer = self._draft_layer(header, table, blocks.start)
        return DraftHead(self, table, f"blk.{blocks.start}.", layer)

    def _draft_layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        """The block of the draft head, an attending one; by default made like the trunk's."""
        return self._layer(header, table, index)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> Layer:
        raise NotImplementedError

    def hidden(
        self,
        ops: Ops,
        tokens: npt.NDArray[np.int32],
        start: int,
        layers: Sequence[LayerState],
    ) -> Tensor:
        """States after the output norm, [T, E]; advances `layers` by the chunk."""
        chunk = self.chunk(ops, start, tokens.size)
        x = ops.embed(self.embedding, tokens)
        for layer, state in zip(self.layers, layers, strict=True):
            self.advance(ops, x, layer, chunk, state)
        return ops.rms_norm(x, self.output_norm, self.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""
        return ops.linear(self.head, hidden)

    def chunk(self, ops: Ops, start: int, count: int) -> Chunk:
        """Positions and RoPE angles of `count` tokens from `start` on."""
        return Chunk(start, ops.rope_table(start, count, self.frequencies, self.magnitude))

    def advance(self, ops: Ops, x: Tensor, layer: Layer, chunk: Chunk, state: LayerState) -> None:
        """Let x [T, E] go through one layer, in place."""
        with ops.scope():
            h = ops.rms_norm(x, layer.mixer_norm, self.eps)
            ops.add(x, layer.mixer(ops, h, chunk, state))
        with ops.scope():
            h = ops.rms_norm(x, layer.feed_forward_norm, self.eps)
            ops.add(x, layer.feed_forward(ops, h))


def block_counts(header: Hyperparameters) -> tuple[int, int]:
    """Layers of the trunk, and all blocks: the draft blocks stand behind the trunk."""
    total = header.positive("block_count")
    drafts = header.natural("nextn_predict_layers", default=0)
    if drafts >= total:
        raise GgufError(f"{header.key('nextn_predict_layers')} is {drafts} of {total} blocks.")
    return total - drafts, total


def norm_epsilon(header: Hyperparameters) -> float:
    """The RMS norms' epsilon; GgufError unless it is a small positive number."""
    eps = header.real("attention.layer_norm_rms_epsilon")
    if not 0 < eps < 1:
        key = header.key("attention.layer_norm_rms_epsilon")
        raise GgufError(f"{key} is {eps}, not a small positive number.")
    return eps
