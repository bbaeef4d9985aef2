"""How many bytes reading a chunk of T tokens takes besides weights and state.

x [T, E] lives through all layers; what a half-layer takes is given back at its end, so a chunk
takes x and the fullest moment of all half-layers. The moments listed here mirror
`engine/architectures` and the backend's operations tensor by tensor.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratadesk.engine.vram.host_moments import HostMoments
from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    LatentShape,
    LayerShape,
    ModelShape,
)
from stratadesk.units import MIB

CHUNK_STEP = 64
"""Chunks are multiples of this, so that any two read a prompt with the same bits."""

LARGEST_CHUNK = 8_192

Tensor = tuple[int, int]
"""Bytes per token of the chunk, and bytes that do not depend on it."""


Moment = tuple[Tensor, ...]
"""Tensors that are alive at the same time."""


@dataclass(frozen=True, slots=True)
class BufferRule:
    """A backend's coefficients.

    `value_bytes` and `routed_bytes` are those of an activation and of a value that a routed
    expert puts out; x is float32. `overlaid`: tensors share bytes as soon as one is no longer
    needed; without it they are a stack that shrinks where the host engine closes a scope. A
    prompt streams experts through a ring of `ring_experts`. Every tensor begins at a multiple of
    `alignment` bytes. The decode path reads `decode_window` tokens at a time in the decode
    scratch, which has at least `least_scratch` bytes, the staging slot included.
    """

    value_bytes: int
    routed_bytes: int
    overlaid: bool
    ring_experts: int
    alignment: int
    decode_window: int
    least_scratch: int


HOST_RULE = BufferRule(4, 4, False, 0, 64, 8, 0)
"""The host engine (`kernels/host/workspace.py`): float32, experts are read in place."""

GPU_RULE = BufferRule(2, 4, True, 64, 256, 8, 60 * MIB)
"""CUDA: bf16 activations, float32 routed rows; DESIGN 2's 100 KiB a token at the 35B shape."""


class PromptBuffers:
    """Bytes for a chunk of a model under a rule; `mtp` counts the draft block's layers too."""

    def __init__(self, shape: ModelShape, rule: BufferRule, mtp: bool = False) -> None:
        self._align = rule.alignment
        self._always = tuple(_always(shape, rule))
        self._moments = {
            moment for layer in shape.layers for moment in _moments(shape, layer, rule)
        }
        if mtp and shape.draft:
            self._moments.update(_draft_moments(shape, rule))
        if not rule.overlaid:
            # States after the output norm, and the logits of the last token.
            self._moments.add(((4 * shape.width, 0), (0, 4 * shape.vocab)))
        self.ring_bytes = max(
            (min(rule.ring_experts, moe.experts) * moe.expert_bytes for moe in shape.experts(mtp)),
            default=0,
        )

    def __call__(self, tokens: int) -> int:
        """Bytes for a chunk of `tokens`, the ring included."""
        return self.ring_bytes + self.activations(tokens)

    def activations(self, tokens: int) -> int:
        """Bytes of tensors alone."""
        fullest = max((self._sum(moment, tokens) for moment in self._moments), default=0)
        return self._sum(self._always, tokens) + fullest

    def _sum(self, tensors: Moment, tokens: int) -> int:
        step = self._align
        return sum(-(-(slope * tokens + base) // step) * step for slope, base in tensors)


def _always(shape: ModelShape, rule: BufferRule) -> Iterator[Tensor]:
    """x, and on the host RoPE's cosines and sines, one of each per pair of values."""
    yield 4 * shape.width * (shape.streams.count if shape.streams else 1), 0
    if not rule.overlaid:
        yield from ((2 * shape.rotated, 0), (2 * shape.rotated, 0))


def _draft_moments(shape: ModelShape, rule: BufferRule) -> Iterator[Moment]:
    """The trunk's states and the same one token later stay while the draft block is computed.

    It begins by joining them, normed, with embeddings; on the host x and RoPE are its own.
    """
    width = shape.width
    own = () if rule.overlaid else tuple(_always(shape, rule))
    beside = _values(width, width, size=rule.value_bytes) + own
    yield beside + _values(width, width, 2 * width, width, size=rule.value_bytes)
    for layer in shape.draft:
        for moment in _moments(shape, layer, rule):
            yield beside + moment


def _moments(shape: ModelShape, layer: LayerShape, rule: BufferRule) -> Iterator[Moment]:
    if rule.overlaid:
        yield from _OverlaidMoments(shape, rule).of(layer)
    else:
        yield from (_values(*counts) for counts in HostMoments(shape).of(layer))


class _OverlaidMoments:
    """What is alive at the peak of a half-layer; the sum of routed rows goes straight into x."""

    def __init__(self, shape: ModelShape, rule: BufferRule) -> None:
        self._width = shape.width
        self._context = shape.context
        self._streams = shape.streams
        self._rule = rule

    def of(self, layer: LayerShape) -> Iterator[Moment]:
        """Every moment of a layer that may be its fullest."""
        if self._streams:
            wide = self._streams.count * self._width
            yield self._beside_h(wide, self._streams.rank, wide)
            if layer.ngrams:
                yield self._beside_h(wide, wide, self._width, wide)
        if isinstance(layer.mixer, AttentionShape):
            yield self._attention(layer.mixer)
        elif isinstance(layer.mixer, LatentShape):
            yield self._latent(layer.mixer)
        elif isinstance(layer.mixer, DeltaNetShape):
            yield self._delta_net(layer.mixer)
        feed = layer.feed_forward
        yield from self._experts(feed) if feed.experts else self._dense(feed)

    def _attention(self, mixer: AttentionShape) -> Moment:
        indexer = mixer.indexer
        seen = (4 * indexer.budget,) if indexer and indexer.budget < self._context else ()
        taken = self._beside_h(*mixer.projections, mixer.inner)
        return (*taken, *((n_bytes, 0) for n_bytes in seen))

    def _latent(self, mixer: LatentShape) -> Moment:
        absorbed = (mixer.heads * mixer.row, mixer.heads * mixer.latent)
        return self._beside_h(mixer.query, mixer.row, *absorbed)

    def _delta_net(self, mixer: DeltaNetShape) -> Moment:
        return self._beside_h(*mixer.projections, mixer.channels, mixer.inner)

    def _experts(self, feed: FeedForwardShape) -> Iterator[Moment]:
        """Rows put out, and 32 bytes an entry: expert, weight, source row, place."""
        entries = feed.used
        rows = self._rule.routed_bytes * entries * self._width
        hidden = self._beside_h(2 * entries * feed.inner, entries * feed.inner)
        yield (*hidden, (rows, 0), (32 * entries, 0))

    def _dense(self, feed: FeedForwardShape) -> Iterator[Moment]:
        yield self._beside_h(2 * feed.dense, feed.dense)

    def _beside_h(self, *counts: int) -> Moment:
        return _values(self._width, *counts, size=self._rule.value_bytes)


def _values(*counts: int, size: int = 4) -> Moment:
    return tuple((size * count, 0) for count in counts)
