"""qwen4exp: Qwen3.8-Flash-Next. Hyper-connections, block-sparse attention, one n-gram layer.

llama.cpp, which the results are compared with, calls its own graph of this family provisional.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.attention import Attention, AttentionForm
from stratadesk.engine.architectures.base import Chunk, FeedForward, Mixer
from stratadesk.engine.architectures.block_attention import BlockAttention, Indexer
from stratadesk.engine.architectures.delta_net import DeltaNet
from stratadesk.engine.architectures.feed_forward import SharedExpertMixture
from stratadesk.engine.architectures.ngram_embedding import FedMixer, NgramEmbedding
from stratadesk.engine.architectures.qwen35moe import is_recurrent
from stratadesk.engine.architectures.residual import norm_epsilon
from stratadesk.engine.architectures.streams import StreamMixer
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.engine.rope import rope_frequencies
from stratadesk.engine.vram.plan_settings import DEFAULT_CONTEXT
from stratadesk.errors import GgufError, UnsupportedModelError

FORM = AttentionForm(gated=True)


class SigmoidDeltaNet(DeltaNet):
    """A delta net whose output gate is sigmoid(z)."""

    def _gated(self, ops: Ops, o: Tensor, z: Tensor) -> Tensor:
        return ops.rms_norm_sigmoid_gate(o, z, self.norm, self.eps)


@dataclass(frozen=True, slots=True)
class StreamLayer:
    """Both halves read a mix of all streams and feed every stream."""

    mix_mixer: StreamMixer
    mixer: Mixer
    mix_feed_forward: StreamMixer
    feed_forward: FeedForward


class Qwen4Exp:
    """X = feed(X, mixer(mix(X))); X = feed(X, moe(mix(X))), over c streams X that begin alike.

    There are no other norms. `hidden` is the mix before the head.
    """

    kernels = ("delta_net", "streams", "ngrams", "block_attention")
    draft = None

    def __init__(
        self, header: Hyperparameters, table: TensorTable, vocab_size: int, *, mtp: bool = False
    ) -> None:
        _refuse_drafts(header)
        self.vocab_size = vocab_size
        self.width = header.positive("embedding_length")
        self.streams = header.positive("hyper_connection.count")
        self.eps = norm_epsilon(header)
        self.head_size = header.positive("attention.key_length")
        self.rope = rope_frequencies(header, self.head_size)
        self.embedding = table.weight("token_embd.weight", vocab_size, self.width)
        self.head = self.embedding
        if table.has("output.weight"):
            self.head = table.weight("output.weight", vocab_size, self.width)
        count = header.positive("block_count")
        self._fed = _ngram_layers(header, count)
        self.layers: Sequence[StreamLayer] = tuple(
            self._layer(header, table, index) for index in range(count)
        )
        self.last_mix = self._mix(header, table, "output_hc_", feeds=False)

    def hidden(
        self,
        ops: Ops,
        tokens: npt.NDArray[np.int32],
        start: int,
        layers: Sequence[LayerState],
    ) -> Tensor:
        """The mix that the head reads, [T, E]; advances `layers` by the chunk."""
        chunk = Chunk(start, ops.rope_table(start, tokens.size, *self.rope))
        x = ops.embed_streams(self.embedding, tokens, self.streams)
        for layer, state in zip(self.layers, layers, strict=True):
            if isinstance(layer.mixer, FedMixer):
                with ops.scope():
                    layer.mixer.feed(ops, x, tokens, state)
            with ops.scope():
                h, inject = layer.mix_mixer(ops, x)
                ops.feed_streams(x, layer.mixer(ops, h, chunk, state), inject)
            with ops.scope():
                h, inject = layer.mix_feed_forward(ops, x)
                ops.feed_streams(x, layer.feed_forward(ops, h), inject)
        return self.last_mix(ops, x)[0]

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[T, E] → [T, vocabulary]."""
        return ops.linear(self.head, hidden)

    def _layer(self, header: Hyperparameters, table: TensorTable, index: int) -> StreamLayer:
        prefix = f"blk.{index}."
        mixer = self._mixer(header, table, index)
        if index in self._fed:
            numbers = (self.width, self.streams, self.eps)
            mixer = FedMixer(mixer, NgramEmbedding(header, table, prefix, *numbers))
        return StreamLayer(
            self._mix(header, table, f"{prefix}hc_attn_"),
            mixer,
            self._mix(header, table, f"{prefix}hc_ffn_"),
            SharedExpertMixture(header, table, prefix, self.width),
        )

    def _mix(
        self, header: Hyperparameters, table: TensorTable, prefix: str, *, feeds: bool = True
    ) -> StreamMixer:
        return StreamMixer(header, table, prefix, self.width, self.eps, feeds=feeds)

    def _mixer(self, header: Hyperparameters, table: TensorTable, index: int) -> Mixer:
        prefix, width, eps = f"blk.{index}.", self.width, self.eps
        block = _block_size(header, index)
        if is_recurrent(header, index):
            return SigmoidDeltaNet(header, table, prefix, width, eps)
        numbers = (width, self.head_size, eps, FORM)
        if not block:
            return Attention(header, table, prefix, *numbers)
        indexer = Indexer(header, table, prefix, width, eps, block, self.rope)
        return BlockAttention(header, table, prefix, *numbers, indexer)


def _block_size(header: Hyperparameters, index: int) -> int:
    """Tokens per block of layer `index`, 0 where every token is seen."""
    listed = header.integers("attention.compress_ratios")
    if index >= len(listed) or listed[index] < 0 or (listed[index] and is_recurrent(header, index)):
        raise GgufError(
            f"{header.key('attention.compress_ratios')} {list(listed)} does not fit layer {index}."
        )
    longest = header.positive("context_length", default=DEFAULT_CONTEXT)
    if listed[index] > longest:
        raise GgufError(
            f"{header.key('attention.compress_ratios')} {list(listed)} has blocks of "
            f"{listed[index]} tokens, but {header.key('context_length')} is {longest}."
        )
    return listed[index]


def _ngram_layers(header: Hyperparameters, count: int) -> tuple[int, ...]:
    """The layer that n-grams are fed into, or none."""
    listed = header.integers("ple.layers")
    if len(listed) > 1:
        raise UnsupportedModelError(
            f"{header.key('ple.layers')} lists {len(listed)} layers; this version feeds n-grams "
            "into one."
        )
    if any(not 0 <= index < count or not is_recurrent(header, index) for index in listed):
        raise GgufError(f"{header.key('ple.layers')} {list(listed)} names no delta-net layer.")
    return listed


def _refuse_drafts(header: Hyperparameters) -> None:
    if header.natural("nextn_predict_layers", default=0):
        raise UnsupportedModelError(
            f"{header.key('nextn_predict_layers')} is not 0; this version knows no draft block of "
            f"{header.architecture}."
        )


MODEL = Qwen4Exp
