"""The frame of the Qwen families: embedding, pre-norm residual layers, output norm, head."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.base import Chunk, Layer
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.engine.rope import rope_frequencies
from stratadesk.errors import GgufError


class ResidualModel:
    """A stack of layers between embedding and head; families fill in `_layer`."""

    def __init__(self, header: Hyperparameters, table: TensorTable, vocab_size: int) -> None:
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
        total = header.positive("block_count")
        drafts = header.natural("nextn_predict_layers", default=0)
        if drafts >= total:
            raise GgufError(f"{header.key('nextn_predict_layers')} is {drafts} of {total} blocks.")
        self.layers: Sequence[Layer] = tuple(
            self._layer(header, table, index) for index in range(total - drafts)
        )
        for index in range(total - drafts, total):
            table.set_aside(f"blk.{index}.")

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
        rope = ops.rope_table(start, tokens.size, self.frequencies, self.magnitude)
        chunk = Chunk(start, rope)
        x = ops.embed(self.embedding, tokens)
        for layer, state in zip(self.layers, layers, strict=True):
            with ops.scope():
                h = ops.rms_norm(x, layer.mixer_norm, self.eps)
                ops.add(x, layer.mixer(ops, h, chunk, state))
            with ops.scope():
                h = ops.rms_norm(x, layer.feed_forward_norm, self.eps)
                ops.add(x, layer.feed_forward(ops, h))
        return ops.rms_norm(x, self.output_norm, self.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""
        return ops.linear(self.head, hidden)


def norm_epsilon(header: Hyperparameters) -> float:
    """The RMS norms' epsilon; GgufError unless it is a small positive number."""
    eps = header.real("attention.layer_norm_rms_epsilon")
    if not 0 < eps < 1:
        key = header.key("attention.layer_norm_rms_epsilon")
        raise GgufError(f"{key} is {eps}, not a small positive number.")
    return eps
