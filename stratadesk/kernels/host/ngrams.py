"""The n-gram embedding: hashed rows of a table, gated into each stream, through a convolution.

Formulas: `stratadesk/engine/architectures/ngram_embedding.py`.
"""

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.elementwise import sigmoid, silu
from stratadesk.kernels.host.kernel import kernel
from stratadesk.kernels.host.sums import dot

SMALLEST_SCORE = np.float32(1e-6)
"""The magnitude of a gate's score is never taken below this before its root."""


@kernel(
    "void(int32[:, ::1], int32[::1], uint64[::1], uint64[::1], uint64[::1], int32, int32[:, ::1])",
    parallel=False,
)
def hashed_rows(
    history: np.ndarray,
    tokens: np.ndarray,
    multipliers: np.ndarray,
    sizes: np.ndarray,
    offsets: np.ndarray,
    end_token: int,
    out: np.ndarray,
) -> None:
    """Row of the table for each token and head g, out [T, G].

    Heads are dealt evenly to 2-grams, 3-grams, … up to as many tokens as there are multipliers.
    An n-gram's hash is the exclusive or of its tokens, the newest first, each times its
    multiplier, wrapping at 2^64; head g takes it modulo sizes[g], plus offsets[g]. `history`
    [n - 1, 1] are the tokens before, oldest first. From the first end token on that stands before
    the newest, all are read as the end token.
    """
    longest = multipliers.size
    per_length = sizes.size // (longest - 1)
    past = history.shape[0]
    for t in range(tokens.size):
        mixed = np.uint64(tokens[t]) * multipliers[0]
        ended = False
        for back in range(1, longest):
            at = t - back
            token = tokens[at] if at >= 0 else history[past + at, 0]
            ended = ended or token == end_token
            mixed ^= np.uint64(end_token if ended else token) * multipliers[back]
            for g in range((back - 1) * per_length, back * per_length):
                out[t, g] = np.int32(mixed % sizes[g] + offsets[g])


@njit
def _signed_root(score: float) -> np.float32:
    """Sign(score) · sqrt(max(|score|, 1e-6)); 0 for 0."""
    size = abs(score)
    root: np.float32 = np.sqrt(size if size > SMALLEST_SCORE else SMALLEST_SCORE)
    if score > 0:
        return root
    return -root if score < 0 else np.float32(0)


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1])")
def gate_into_streams(
    key: np.ndarray, query: np.ndarray, value: np.ndarray, out: np.ndarray
) -> None:
    """out[t, s] = value[t] · sigmoid(sign(z) · sqrt(max(|z|, 1e-6))), z = key·query / sqrt(E).

    key, query and out are [T, c·E] and z is taken per stream s; value [T, E].
    """
    width = value.shape[1]
    root = np.sqrt(np.float32(width))
    for t in prange(value.shape[0]):
        for s in range(out.shape[1] // width):
            first, end = s * width, (s + 1) * width
            score = dot(key[t, first:end], query[t, first:end]) / root
            factor = sigmoid(_signed_root(score))
            for i in range(width):
                out[t, first + i] = value[t, i] * factor


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int64, float32[:, ::1])")
def add_convolved(
    history: np.ndarray, u: np.ndarray, weight: np.ndarray, dilation: int, x: np.ndarray
) -> None:
    """x[t] += silu(Σ_k weight[:, k] · u[t - (C-1-k) · dilation]), depthwise.

    u and x are [T, channels], weight [channels, C]; `history` [(C-1) · dilation, channels] holds
    the rows of u before its first one, oldest first.
    """
    width, past = weight.shape[1], history.shape[0]
    for t in prange(u.shape[0]):
        for c in range(u.shape[1]):
            total = np.float32(0)
            for k in range(width):
                row = t - (width - 1 - k) * dilation
                value = u[row, c] if row >= 0 else history[past + row, c]
                total += weight[c, k] * value
            x[t, c] += silu(total)
