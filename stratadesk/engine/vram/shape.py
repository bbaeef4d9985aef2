"""What a model's tensors need, told from names and sizes alone: no backend, no tensor data.

Sizes are bytes in the arena: every tensor, and every part of an expert, is rounded up to
`geometry.ALIGNMENT`. `read_shape` (`shape_reader.py`) builds these from an open file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.mixer_shapes import (
    AttentionShape,
    DeltaNetShape,
    IndexerShape,
    LatentShape,
    MixerShape,
)

__all__ = [
    "AttentionShape",
    "DeltaNetShape",
    "FeedForwardShape",
    "IndexerShape",
    "LatentShape",
    "LayerShape",
    "ModelShape",
    "NgramShape",
    "StreamShape",
]

KV_VALUE_BYTES = {
    KvFormat.F32: (4, 1),
    KvFormat.F16: (2, 1),
    KvFormat.Q8_0: (34, 32),
}
"""Bytes per number of values in each format of the KV cache."""


@dataclass(frozen=True, slots=True)
class FeedForwardShape:
    """A dense feed-forward of width `dense` (also the shared expert's), routed experts, or both.

    Of `experts` experts of width `inner`, a token uses `used`; one takes `expert_bytes` and has
    `expert_values` weights. All of these are 0 without experts.
    """

    dense: int = 0
    experts: int = 0
    used: int = 0
    inner: int = 0
    expert_bytes: int = 0
    expert_values: int = 0


@dataclass(frozen=True, slots=True)
class NgramShape:
    """An n-gram embedding: a token reads `heads` rows of a table that stays on the host.

    Its convolution reaches over `past` rows of all streams; n-grams have up to `length` tokens.
    """

    heads: int
    length: int
    past: int
    channels: int

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of the last tokens, int32, and of the last rows, float32."""
        return aligned(4 * (self.length - 1)) + aligned(4 * self.past * self.channels)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer: `dense_bytes` stay on the card, `dense_values` weights serve every token."""

    dense_bytes: int
    dense_values: int
    mixer: MixerShape | None
    feed_forward: FeedForwardShape
    ngrams: NgramShape | None = None

    @property
    def has_experts(self) -> bool:
        """Whether the layer routes tokens to experts."""
        return self.feed_forward.experts > 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of what is kept twice, such as recurrent state."""
        parts = (self.mixer, self.ngrams)
        return sum(part.state_bytes for part in parts if part is not None)

    def kv_bytes(self, context: int, kv: KvFormat) -> int:
        """Bytes of what is cached of `context` tokens: keys and values, keys of blocks."""
        if self.mixer is None:
            return 0
        n_bytes, per = KV_VALUE_BYTES[kv]
        cached = (aligned(context * -(-width * n_bytes // per)) for width in self.mixer.cached)
        return sum(cached) + self.mixer.index_bytes(context)

    def flops(self, position: float) -> float:
        """Floating-point operations for one token that attends to `position` others."""
        feed = self.feed_forward
        flops = 2.0 * (self.dense_values + feed.used * feed.expert_values)
        return flops + (self.mixer.flops(position) if self.mixer else 0.0)


@dataclass(frozen=True, slots=True)
class StreamShape:
    """Hyper-connections: `count` residual streams, mixed through a matrix of rank `rank`."""

    count: int
    rank: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A whole model. `layers` are the trunk's, `draft` those of the block that drafts tokens.

    `width` and `vocab` are in values, `rotated` is the number of values of a head that RoPE
    turns, `context` the model's own length in tokens. `head_bytes` are those of the embedding
    when the head is `tied` to it, and only then is the embedding on the card. `other_bytes` are
    the rest outside layers, such as the output norm. Without `streams` there is one residual
    stream.
    """

    name: str
    architecture: str
    width: int
    vocab: int
    context: int
    rotated: int
    head_bytes: int
    embedding_bytes: int
    other_bytes: int
    tied: bool
    layers: tuple[LayerShape, ...]
    draft: tuple[LayerShape, ...] = ()
    streams: StreamShape | None = None

    def running(self, mtp: bool) -> tuple[LayerShape, ...]:
        """The layers that are computed, the draft block behind the trunk when `mtp`."""
        return self.layers + self.draft if mtp else self.layers

    def experts(self, mtp: bool) -> Iterator[FeedForwardShape]:
        """The layers with routed experts, in order."""
        return (layer.feed_forward for layer in self.running(mtp) if layer.has_experts)

    def windows(self, mtp: bool) -> tuple[int, ...]:
        """How many tokens each layer with a window sees, in order."""
        mixers = (layer.mixer for layer in self.running(mtp))
        attending = (mixer for mixer in mixers if isinstance(mixer, AttentionShape))
        return tuple(mixer.window for mixer in attending if mixer.window)

    def carried_bytes(self, mtp: bool) -> int:
        """Bytes of one copy of the two rows that a draft head keeps between chunks, float32."""
        return 2 * aligned(4 * self.width) if mtp and self.draft else 0

    def broken_row(self, kv: KvFormat, mtp: bool) -> int:
        """Values of a cached row that is not whole blocks of `kv`, 0 when all rows are."""
        _, per = KV_VALUE_BYTES[kv]
        mixers = (layer.mixer for layer in self.running(mtp))
        rows = (row for mixer in mixers if mixer is not None for row in mixer.cached_rows)
        return next((row for row in rows if row % per), 0)

    @property
    def lendable_head(self) -> int:
        """Bytes of the head that a prompt may take; a tied head is never lent."""
        return 0 if self.tied else self.head_bytes

    def dense_bytes(self, mtp: bool) -> int:
        """Bytes that stay on the card, without the head unless it is tied."""
        layers = sum(layer.dense_bytes for layer in self.running(mtp))
        return layers + self.other_bytes + (self.head_bytes if self.tied else 0)
