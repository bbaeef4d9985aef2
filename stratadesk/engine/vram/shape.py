"""What a model's tensors need, told from names and sizes alone: no backend, no tensor data.

Sizes are bytes in the arena: every tensor, and every part of an expert, is rounded up to
`geometry.ALIGNMENT`. `read_shape` (`shape_reader.py`) builds these from an open file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.vram.geometry import aligned

KV_VALUE_BYTES = {
    KvFormat.F32: (4, 1),
    KvFormat.F16: (2, 1),
    KvFormat.Q8_0: (34, 32),
}
"""Bytes per number of values in each format of the KV cache."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Widths, in values per token.

    `projections` are the rows of every matrix but the output's, `inner` are its columns (heads
    times head size). `keys` and `values` are cached. `gated`: the query projection holds a gate
    too; `normed`: queries and keys are normed into tensors of their own.
    """

    projections: tuple[int, ...]
    inner: int
    keys: int
    values: int
    gated: bool = False
    normed: bool = False


@dataclass(frozen=True, slots=True)
class DeltaNetShape:
    """Widths, in values per token, and sizes of the state.

    `projections` and `inner` as in `AttentionShape`; the convolution spans `span` tokens of
    `channels`; each of `heads` value heads has a memory of `size` x `size`.
    """

    projections: tuple[int, ...]
    inner: int
    channels: int
    span: int
    heads: int
    size: int

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of the state, float32: convolution history and memory."""
        history = (self.span - 1) * self.channels
        return aligned(4 * history) + aligned(4 * self.heads * self.size**2)


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
class LayerShape:
    """One layer: `dense_bytes` stay on the card, `dense_values` weights serve every token."""

    dense_bytes: int
    dense_values: int
    mixer: AttentionShape | DeltaNetShape | None
    feed_forward: FeedForwardShape

    @property
    def has_experts(self) -> bool:
        """Whether the layer routes tokens to experts."""
        return self.feed_forward.experts > 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of recurrent state."""
        return self.mixer.state_bytes if isinstance(self.mixer, DeltaNetShape) else 0

    def kv_bytes(self, context: int, kv: KvFormat) -> int:
        """Bytes of keys and values of `context` tokens."""
        if not isinstance(self.mixer, AttentionShape):
            return 0
        n_bytes, per = KV_VALUE_BYTES[kv]
        sizes = (self.mixer.keys, self.mixer.values)
        return sum(aligned(context * -(-width * n_bytes // per)) for width in sizes)

    def flops(self, position: float) -> float:
        """Floating-point operations for one token that attends to `position` others."""
        feed = self.feed_forward
        flops = 2.0 * (self.dense_values + feed.used * feed.expert_values)
        if isinstance(self.mixer, AttentionShape):
            return flops + 4.0 * self.mixer.inner * position
        if isinstance(self.mixer, DeltaNetShape):
            return flops + 6.0 * self.mixer.heads * self.mixer.size**2
        return flops


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A whole model. `layers` are the trunk's, `draft` those of the block that drafts tokens.

    `width` and `vocab` are in values, `rotated` is the number of values of a head that RoPE
    turns, `context` the model's own length in tokens. `head_bytes` are those of the embedding
    when the head is `tied` to it, and only then is the embedding on the card. `other_bytes` are
    the rest outside layers, such as the output norm.
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

    def running(self, mtp: bool) -> tuple[LayerShape, ...]:
        """The layers that are computed, the draft block behind the trunk when `mtp`."""
        return self.layers + self.draft if mtp else self.layers

    def experts(self, mtp: bool) -> Iterator[FeedForwardShape]:
        """The layers with routed experts, in order."""
        return (layer.feed_forward for layer in self.running(mtp) if layer.has_experts)

    @property
    def lendable_head(self) -> int:
        """Bytes of the head that a prompt may take; a tied head is never lent."""
        return 0 if self.tied else self.head_bytes

    def dense_bytes(self, mtp: bool) -> int:
        """Bytes that stay on the card, without the head unless it is tied."""
        layers = sum(layer.dense_bytes for layer in self.running(mtp))
        return layers + self.other_bytes + (self.head_bytes if self.tied else 0)
