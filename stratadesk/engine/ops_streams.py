"""Operations of hyper-connections and n-gram embeddings; see `ops.Ops` for what holds of all.

c residual streams are one tensor [T, c·E], stream after stream.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.ngram_hash import NgramHash


class StreamOps(Protocol):
    """What several residual streams need besides the operations of every family."""

    def embed_streams(self, weight: Any, tokens: npt.NDArray[np.int32], count: int) -> Any:
        """Rows `tokens` of a matrix in each of `count` streams, [T, c·E]."""

    def stream_norm(self, x: Any, weight: Any, count: int, eps: float) -> Any:
        """RMS norm of each stream by itself, times weight [c·E]."""

    def norm_streams(self, x: Any, weight: Any, count: int, eps: float) -> None:
        """The same in place."""

    def mix_streams(
        self,
        x: Any,
        norm: Any,
        gate: tuple[Any, Any],
        inject: Any | None,
        count: int,
        eps: float,
    ) -> tuple[Any, Any | None]:
        """One input from all streams, [T, E], and what `feed_streams` needs, [T, c].

        With f = stream_norm(x; norm) and `gate` = (down, up): the mean over streams of
        f ⊙ sigmoid(up · silu(down·f / c)), and inject·f, None without `inject`.
        """

    def feed_streams(self, x: Any, y: Any, inject: Any) -> None:
        """x_s += y · 2 · sigmoid(inject_s / c) in place for every stream s; y [T, E]."""

    def ngram_state(self, facts: NgramHash, span: int, width: int) -> Any:
        """State before the first token; the convolution spans `span` rows of `width` values."""

    def ngram_rows(self, tokens: npt.NDArray[np.int32], facts: NgramHash, state: Any) -> Any:
        """Rows of the table that the tokens read, [T · heads]; advances the state's tokens."""

    def gate_into_streams(self, key: Any, query: Any, value: Any) -> Any:
        """value [T, E] in each stream, [T, c·E], times sigmoid(sign(z) · sqrt(max(|z|, 1e-6))).

        z = key·query / sqrt(E), per stream.
        """

    def add_convolved(self, x: Any, u: Any, weight: Any, dilation: int, state: Any) -> None:
        """x += silu of the depthwise causal convolution of u, both [T, c·E]; advances the state.

        The convolution reads every `dilation`-th row, `weight` [c·E, span].
        """
