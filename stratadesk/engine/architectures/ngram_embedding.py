"""The n-gram embedding: rows of a large table, chosen by hashing the last tokens."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.engine.architectures.base import Chunk, Mixer
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import LayerState, Ops, Tensor
from stratadesk.errors import GgufError
from stratadesk.kernels.ngram_hash import NgramHash

LONGEST = 64
"""Longest n-gram, far above any model; a larger one is a damaged header."""

MOST_ROWS = 1 << 31
"""Rows are numbered in 32 bits."""


class NgramEmbedding:
    """Feeds e, the rows of a token's n-grams joined, into streams X_s.

    With z = rms(W_k e)·rms(X) / sqrt(E) per stream:

        V = (W_v e) · sigmoid(sign(z) · sqrt(max(|z|, 1e-6)))
        X += V + silu(convolution of rms(V), every n-th token)
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        streams: int,
        eps: float,
    ) -> None:
        self.eps = eps
        self.streams = streams
        self.hash = ngram_hash(header)
        self.span = header.positive("ple.conv_kernel")
        self.table = _table(header, table, self.hash, width)
        wide = streams * width
        self.key = table.weight(f"{prefix}ple_key.weight", wide, width)
        self.value = table.weight(f"{prefix}ple_value.weight", width, width)
        self.key_norm = table.vector(f"{prefix}ple_norm_key.weight", wide)
        self.query_norm = table.vector(f"{prefix}ple_norm_query.weight", wide)
        self.value_norm = table.vector(f"{prefix}ple_norm_conv.weight", wide)
        self.convolution = table.vector(f"{prefix}ple_conv1d.weight", wide, self.span)
        self.wide = wide

    def new_state(self, ops: Ops) -> LayerState:
        """No tokens yet."""
        state: LayerState = ops.ngram_state(self.hash, self.span, self.wide)
        return state

    def __call__(
        self, ops: Ops, x: Tensor, tokens: npt.NDArray[np.int32], state: LayerState
    ) -> None:
        """Feed the n-grams of a chunk's tokens into x [T, c·E]; advances the state."""
        count, eps = self.streams, self.eps
        rows = ops.ngram_rows(tokens, self.hash, state)
        e = ops.embed(self.table, rows).reshape(tokens.size, -1)
        key = ops.linear(self.key, e)
        ops.norm_streams(key, self.key_norm, count, eps)
        query = ops.stream_norm(x, self.query_norm, count, eps)
        v = ops.gate_into_streams(key, query, ops.linear(self.value, e))
        ops.add(x, v)
        ops.norm_streams(v, self.value_norm, count, eps)
        ops.add_convolved(x, v, self.convolution, self.hash.length, state)


@dataclass(frozen=True, slots=True)
class FedState:
    """The state of a layer that n-grams are fed into before its first half."""

    mixer: LayerState
    ngrams: LayerState

    @property
    def n_bytes(self) -> int:
        """Bytes of both."""
        return self.mixer.n_bytes + self.ngrams.n_bytes

    def commit(self) -> None:
        """Make what the last chunk wrote the state that the next one reads."""
        self.mixer.commit()
        self.ngrams.commit()


@dataclass(frozen=True, slots=True)
class FedMixer:
    """The first half of a layer with n-grams fed in before it; one state for both."""

    inner: Mixer
    ngrams: NgramEmbedding

    def new_state(self, ops: Ops, context: int, kv_format: str) -> LayerState:
        """Empty states of both."""
        inner = self.inner.new_state(ops, context, kv_format)
        return FedState(inner, self.ngrams.new_state(ops))

    def feed(self, ops: Ops, x: Tensor, tokens: npt.NDArray[np.int32], state: LayerState) -> None:
        """Let the n-grams into the streams."""
        assert isinstance(state, FedState)
        self.ngrams(ops, x, tokens, state.ngrams)

    def __call__(self, ops: Ops, h: Tensor, chunk: Chunk, state: LayerState) -> Tensor:
        """[T, E] → [T, E]; advances the mixer's part of the state."""
        assert isinstance(state, FedState)
        return self.inner(ops, h, chunk, state.mixer)


def ngram_hash(header: Hyperparameters) -> NgramHash:
    """How tokens are hashed; GgufError when the numbers contradict each other."""
    length = header.positive("ple.ngram_size")
    heads = (length - 1) * header.positive("ple.heads_per_ngram")
    multipliers = header.integers("ple.layer_multipliers")
    sizes, offsets = header.integers("ple.head_vocab_sizes"), header.integers("ple.head_offsets")
    if not 2 <= length <= LONGEST or len(multipliers) != length:
        raise GgufError(
            f"{header.key('ple.ngram_size')} is {length}, with {len(multipliers)} multipliers."
        )
    if len(sizes) != heads or len(offsets) != heads or min(sizes) < 1 or min(offsets) < 0:
        raise GgufError(
            f"{heads} heads of n-grams do not fit {header.key('ple.head_vocab_sizes')} and "
            f"{header.key('ple.head_offsets')}."
        )
    return NgramHash(
        np.array([number % 2**64 for number in multipliers], np.uint64),
        np.array(sizes, np.uint64),
        np.array(offsets, np.uint64),
        header.natural("ple.eos_token_id"),
    )


def _table(header: Hyperparameters, table: TensorTable, facts: NgramHash, width: int) -> Tensor:
    """The table, whose rows of all heads joined are as wide as the model."""
    columns = header.positive("embedding_length_per_layer_input")
    if columns * facts.heads != width:
        raise GgufError(
            f"{header.key('embedding_length_per_layer_input')} is {columns}; {facts.heads} rows of "
            f"that do not join to {header.key('embedding_length')} {width}."
        )
    name = "per_layer_token_embd.weight"
    read = max(int(a) + int(b) for a, b in zip(facts.sizes, facts.offsets, strict=True))
    rows = table.shape(name)[0]
    if not read <= rows < MOST_ROWS:
        raise GgufError(f"Tensor {name} has {rows} rows; n-grams are hashed to {read}.")
    return table.weight(name, rows, columns)
