"""Operations of hyper-connections and of the n-gram embedding that feeds their streams."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host import ngrams, streams
from stratadesk.kernels.host.history import HostHistory
from stratadesk.kernels.host.ngram_state import HostNgramState
from stratadesk.kernels.host.ops_base import OpsBase
from stratadesk.kernels.host.weights import HostWeight
from stratadesk.kernels.ngram_hash import NgramHash

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class StreamOps(OpsBase):
    """See `stratadesk.engine.ops_streams.StreamOps` for each operation's meaning."""

    def embed_streams(self, weight: HostWeight, tokens: Ints, count: int) -> Floats:
        """Rows `tokens` of a matrix in each of `count` streams, [T, c·E]."""
        out = self._empty(tokens.size, count * weight.columns)
        with self.scope():
            streams.spread(self.embed(weight, tokens), out)
        return out

    def stream_norm(self, x: Floats, weight: Floats, count: int, eps: float) -> Floats:
        """RMS norm of each stream of x [T, c·E]."""
        out = self._empty(*x.shape)
        streams.stream_norm(x, weight, count, np.float32(eps), out)
        return out

    def norm_streams(self, x: Floats, weight: Floats, count: int, eps: float) -> None:
        """The same in place."""
        streams.stream_norm(x, weight, count, np.float32(eps), x)

    def mix_streams(
        self,
        x: Floats,
        norm: Floats,
        gate: tuple[HostWeight, HostWeight],
        inject: HostWeight | None,
        count: int,
        eps: float,
    ) -> tuple[Floats, Floats | None]:
        """The gated mean of the normed streams of x [T, c·E], and what `inject` makes of them."""
        down, up = gate
        out = self._empty(x.shape[0], x.shape[1] // count)
        injected = None if inject is None else self._empty(x.shape[0], count)
        with self.scope():
            normed = self.stream_norm(x, norm, count, eps)
            if inject is not None and injected is not None:
                self._multiply(inject, normed, injected)
            low = self.linear(down, normed)
            streams.silu_of_share(low, np.float32(count))
            streams.mix(normed, self.linear(up, low), out)
        return out, injected

    def feed_streams(self, x: Floats, y: Floats, inject: Floats) -> None:
        """x_s += y · 2 · sigmoid(inject_s / c) in place for every stream s."""
        streams.feed(x, y, inject)

    def ngram_state(self, facts: NgramHash, span: int, width: int) -> HostNgramState:
        """State before the first token; the convolution spans `span` rows of `width` values."""
        past = (span - 1) * facts.length
        return HostNgramState(
            HostHistory(self.resident, facts.length - 1, 1, np.int32, facts.end_token),
            HostHistory(self.resident, past, width),
        )

    def ngram_rows(self, tokens: Ints, facts: NgramHash, state: HostNgramState) -> Ints:
        """Rows of the table for the tokens of a chunk, [T · G]; notes the last tokens."""
        out: Ints = self.workspace.empty((tokens.size, facts.heads), np.int32)
        past = state.tokens.rows
        numbers = (facts.multipliers, facts.sizes, facts.offsets, np.int32(facts.end_token))
        ngrams.hashed_rows(past, tokens, *numbers, out)
        state.tokens.write(tokens.reshape(-1, 1))
        return out.reshape(-1)

    def gate_into_streams(self, key: Floats, query: Floats, value: Floats) -> Floats:
        """value [T, E] in each stream, gated by the stream's key and query [T, c·E]."""
        out = self._empty(*key.shape)
        ngrams.gate_into_streams(key, query, value, out)
        return out

    def add_convolved(
        self, x: Floats, u: Floats, weight: Floats, dilation: int, state: HostNgramState
    ) -> None:
        """x += silu of the dilated causal convolution of u, both [T, c·E]; notes the last rows."""
        ngrams.add_convolved(state.rows.rows, u, weight, dilation, x)
        state.rows.write(u)
