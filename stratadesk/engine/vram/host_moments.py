"""What the host engine has in its workspace at the fullest moments of half a layer.

Everything a half-layer takes stays until its end, in order; only what an operation takes for
itself is given back before. The moments mirror `engine/architectures` and the host's operations
tensor by tensor; float32 and int32 take 4 bytes alike. Counts are values per token.
"""

from collections.abc import Iterator

from stratadesk.engine.vram.shape import (
    AttentionShape,
    DeltaNetShape,
    FeedForwardShape,
    LatentShape,
    LayerShape,
    ModelShape,
)

Counts = tuple[int, ...]
"""Values per token of tensors that are alive at the same time."""


class HostMoments:
    """The moments of one model's layers."""

    def __init__(self, shape: ModelShape) -> None:
        self._width = shape.width
        self._context = shape.context
        self._streams = shape.streams

    def of(self, layer: LayerShape) -> Iterator[Counts]:
        """Every moment of a layer that may be its fullest."""
        yield from self._streams_of(layer)
        if isinstance(layer.mixer, AttentionShape):
            yield self._attention(layer.mixer)
        elif isinstance(layer.mixer, LatentShape):
            yield from self._latent(layer.mixer)
        elif isinstance(layer.mixer, DeltaNetShape):
            yield self._delta_net(layer.mixer)
        feed = layer.feed_forward
        yield from self._experts(feed) if feed.experts else self._dense(feed)

    def _attention(self, mixer: AttentionShape) -> Counts:
        gate = (mixer.inner, mixer.inner) if mixer.gated else ()
        normed = (mixer.inner, mixer.keys) if mixer.normed else ()
        indexed: Counts = ()
        if mixer.indexer and mixer.indexer.budget < self._context:
            queries = mixer.indexer.heads * mixer.indexer.size
            indexed = (queries, queries, mixer.indexer.size, mixer.indexer.budget)
        taken = (*mixer.projections, *gate, *normed, *indexed)
        return self._beside_h(*taken, mixer.inner, self._width)

    def _latent(self, mixer: LatentShape) -> Iterator[Counts]:
        """While queries are brought to the latent space, while values leave it, and after."""
        heads = mixer.heads
        query = (mixer.rank, mixer.rank, mixer.query) if mixer.rank else (mixer.query,)
        taken = (*query, mixer.row, heads * mixer.row)
        own = () if mixer.transposed else (heads * mixer.plain, heads)
        yield self._beside_h(*taken, *own)
        taken = (*taken, heads * mixer.latent, heads * mixer.value)
        yield self._beside_h(*taken, heads)
        yield self._beside_h(*taken, self._width)

    def _delta_net(self, mixer: DeltaNetShape) -> Counts:
        split = (mixer.split // 2, mixer.split // 2) if mixer.split else ()
        convolved = (mixer.channels, mixer.inner, mixer.inner)
        return self._beside_h(*mixer.projections, *split, *convolved, self._width)

    def _experts(self, feed: FeedForwardShape) -> Iterator[Counts]:
        """While the shared expert is computed, and then while routed ones are."""
        entries, width = feed.used, self._width
        shared: Counts = ()
        if feed.dense:
            yield from self._dense(feed)
            shared = (width, 1)
        routing = self._beside_h(*shared, feed.experts, entries, entries, entries, width)
        yield (*routing, entries * width, 2 * entries * feed.inner, entries * feed.inner)

    def _dense(self, feed: FeedForwardShape) -> Iterator[Counts]:
        yield self._beside_h(self._width, 2 * feed.dense, feed.dense)

    def _streams_of(self, layer: LayerShape) -> Iterator[Counts]:
        """While streams are mixed, and while n-grams are fed into them."""
        if self._streams is None:
            return
        wide = self._streams.count * self._width
        yield self._beside_h(wide, self._streams.rank, wide)
        if layer.ngrams:
            yield layer.ngrams.heads, self._width, wide, wide, self._width, wide

    def _beside_h(self, *counts: int) -> Counts:
        """The half-layer's input, and what streams get back, are there all the time."""
        inject = (self._streams.count,) if self._streams else ()
        return (self._width, *inject, *counts)
