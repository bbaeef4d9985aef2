"""What the first half of a layer needs: widths in values per token, and sizes of its state."""

from dataclasses import dataclass

from stratadesk.engine.vram.geometry import aligned


@dataclass(frozen=True, slots=True)
class IndexerShape:
    """What chooses the tokens that attention sees.

    `heads` queries of `size` values per token, one key per `block` tokens, of which a token sees
    `budget` at most.
    """

    heads: int
    size: int
    block: int
    budget: int

    def key_bytes(self, context: int) -> int:
        """Bytes of the keys of all complete blocks, float32; none where all tokens are seen."""
        if self.budget >= context:
            return 0
        return aligned(4 * (context // self.block) * self.size)

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of the rows of the block begun, float32."""
        return aligned(4 * (self.block - 1) * self.size)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention over keys and values of several heads.

    `projections` are the rows of every matrix but the output's, `inner` are its columns (heads
    times head size). `keys` and `values` are cached, in a row for each of `kv_heads`. `gated`:
    the query projection holds a gate too; `normed`: queries and keys are normed into tensors of
    their own. With an `indexer` a token sees only some of those before it, with a `window` only
    the last ones (0: all).
    """

    projections: tuple[int, ...]
    inner: int
    keys: int
    values: int
    gated: bool = False
    normed: bool = False
    indexer: IndexerShape | None = None
    window: int = 0
    kv_heads: int = 1

    @property
    def cached(self) -> tuple[int, ...]:
        """Values per token of each cached tensor."""
        return self.keys, self.values

    @property
    def cached_rows(self) -> tuple[int, ...]:
        """Values of one row of each cached tensor, which is stored in blocks of its own."""
        return self.keys // self.kv_heads, self.values // self.kv_heads

    def index_bytes(self, context: int) -> int:
        """Bytes of an indexer's keys."""
        return self.indexer.key_bytes(context) if self.indexer else 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of what is kept twice."""
        return self.indexer.state_bytes if self.indexer else 0

    def flops(self, position: float) -> float:
        """Operations beside the matrices for a token that has `position` others before it."""
        if self.indexer is None:
            return 4.0 * self.inner * min(position, self.window or position)
        scored = 2.0 * self.indexer.heads * self.indexer.size * position / self.indexer.block
        return scored + 4.0 * self.inner * min(position, self.indexer.budget)


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Latent attention: a cached row of `latent` and `rotated` values serves all heads.

    A query has `plain` and `rotated` values per head, made from `rank` values (0: directly), a
    head puts out `value` values. `transposed`: keys are not stored the way they are multiplied.
    """

    heads: int
    rank: int
    plain: int
    rotated: int
    latent: int
    value: int
    transposed: bool = False

    @property
    def query(self) -> int:
        """Values of a token's queries."""
        return self.heads * (self.plain + self.rotated)

    @property
    def row(self) -> int:
        """Values of a token's row in the cache."""
        return self.latent + self.rotated

    @property
    def cached(self) -> tuple[int, ...]:
        """Values per token of each cached tensor."""
        return (self.row,)

    @property
    def cached_rows(self) -> tuple[int, ...]:
        """Values of one row of each cached tensor."""
        return (self.row,)

    def index_bytes(self, context: int) -> int:
        """Nothing: every token is seen."""
        return 0

    @property
    def state_bytes(self) -> int:
        """Nothing is kept twice."""
        return 0

    def flops(self, position: float) -> float:
        """Operations beside the matrices for a token that has `position` others before it."""
        return 2.0 * self.heads * (self.row + self.latent) * position


@dataclass(frozen=True, slots=True)
class DeltaNetShape:
    """A gated delta net; its state does not grow with the context.

    `projections` and `inner` as in `AttentionShape`; the convolution spans `span` tokens of
    `channels`; each of `heads` value heads has a memory of `size` x `size`. `split` values are
    copied out of a projection that holds two things.
    """

    projections: tuple[int, ...]
    inner: int
    channels: int
    span: int
    heads: int
    size: int
    split: int = 0

    @property
    def cached(self) -> tuple[int, ...]:
        """Nothing is cached."""
        return ()

    @property
    def cached_rows(self) -> tuple[int, ...]:
        """Nothing is cached."""
        return ()

    def index_bytes(self, context: int) -> int:
        """Nothing is indexed."""
        return 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one copy of the state, float32: convolution history and memory."""
        history = (self.span - 1) * self.channels
        return aligned(4 * history) + aligned(4 * self.heads * self.size**2)

    def flops(self, position: float) -> float:
        """Operations beside the matrices; the same at every position."""
        return 6.0 * self.heads * self.size**2


MixerShape = AttentionShape | LatentShape | DeltaNetShape
