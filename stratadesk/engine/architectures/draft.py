"""The draft head (MTP, "nextn"): one block behind the trunk that drafts tokens ahead."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.base import Chunk, Layer
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.ops import LayerState, Ops, Tensor, Weight


class Trunk(Protocol):
    """What a draft head shares with the model it belongs to."""

    width: int
    vocab_size: int
    eps: float
    embedding: Weight
    head: Weight
    output_norm: Tensor

    def chunk(self, ops: Ops, start: int, count: int) -> Chunk:
        """Positions and RoPE angles of `count` tokens from `start` on."""

    def advance(self, ops: Ops, x: Tensor, layer: Layer, chunk: Chunk, state: LayerState) -> None:
        """Let x [T, E] go through one layer, in place."""


class DraftHead:
    """Drafts from a token and the trunk's state, after its output norm, at the position before.

        x = eh_proj · concat( rms(embed[token]; enorm), rms(state before; hnorm) )
        x = block(x);  h' = rms(x; shared_head_norm);  logits = h' · headᵀ

    Chained, h' takes the place of the state before. Own embedding, head and norm are optional.
    """

    def __init__(self, trunk: Trunk, table: TensorTable, prefix: str, layer: Layer) -> None:
        nextn, width, vocab = f"{prefix}nextn.", trunk.width, trunk.vocab_size
        self._trunk = trunk
        self.layer = layer
        self.embedding_norm = table.vector(f"{nextn}enorm.weight", width)
        self.hidden_norm = table.vector(f"{nextn}hnorm.weight", width)
        self.join = table.weight(f"{nextn}eh_proj.weight", width, 2 * width)
        own_norm = table.optional_vector(f"{nextn}shared_head_norm.weight", width)
        self.norm = trunk.output_norm if own_norm is None else own_norm
        self.embedding, self.head = trunk.embedding, trunk.head
        if table.has(f"{nextn}embed_tokens.weight"):
            self.embedding = table.weight(f"{nextn}embed_tokens.weight", vocab, width)
        if table.has(f"{nextn}shared_head_head.weight"):
            self.head = table.weight(f"{nextn}shared_head_head.weight", vocab, width)

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """The block's own KV cache."""
        return self.layer.mixer.new_state(ops, context, kv_format)

    def hidden(
        self,
        ops: Ops,
        tokens: npt.NDArray[np.int32],
        before: Tensor,
        start: int,
        state: LayerState,
    ) -> Tensor:
        """States after the head's norm, [T, E]; see `Drafter`."""
        chunk = self._trunk.chunk(ops, start, tokens.size)
        x = ops.embed(self.embedding, tokens)
        with ops.scope():
            e = ops.rms_norm(x, self.embedding_norm, self._trunk.eps)
            h = ops.rms_norm(before, self.hidden_norm, self._trunk.eps)
            ops.copy(x, ops.linear(self.join, ops.concatenate(e, h)))
        self._trunk.advance(ops, x, self.layer, chunk, state)
        return ops.rms_norm(x, self.norm, self._trunk.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""
        return ops.linear(self.head, hidden)
