"""Causal attention over a KV cache kept in the bytes of a tensor format.

`attention` is a template over `decode` (see `kernel.specialise`): the cache of one layer is a
flat array of storage units, one row per token and kv head, in F32, F16 or Q8_0.
"""

import math

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.decode_plain import decode_f16, decode_f32, decode_q8_0
from stratadesk.kernels.host.kernel import SUM_MATH, specialise

_SIGNATURE = (
    "void(float32[:, :, ::1], {unit}[::1], {unit}[::1], int64, int64, int64, float32,"
    " float32[:, :, ::1])"
)


@njit
def decode(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Stand for the cache format's decoder in the template below."""


@njit(fastmath=SUM_MATH)
def _dot(x: np.ndarray, y: np.ndarray) -> np.float32:
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@njit(fastmath=SUM_MATH)
def _add_scaled(out: np.ndarray, x: np.ndarray, factor: float) -> None:
    for i in range(out.size):
        out[i] += x[i] * factor


@njit
def _softmax_weights(scores: np.ndarray) -> None:
    """Replace scores by softmax weights, in place, float32."""
    top = scores[0]
    for j in range(1, scores.size):
        top = max(top, scores[j])
    total = np.float32(0)
    for j in range(scores.size):
        scores[j] = math.exp(scores[j] - top)
        total += scores[j]
    for j in range(scores.size):
        scores[j] /= total


@njit
def _from_both_ends(item: int, count: int) -> int:
    """Deal 0, count-1, 1, count-2, …: threads take contiguous items, later queries cost more."""
    return item // 2 if item % 2 == 0 else count - 1 - item // 2


def attention(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    row_units: int,
    kv_heads: int,
    start: int,
    scale: float,
    out: np.ndarray,
) -> None:
    """out[t, h] = softmax(scale · q[t, h]·K) V over the tokens up to start + t.

    q and out are [T, H, d]; query head h reads kv head h // (H / kv_heads); `keys` and `values`
    hold the tokens 0 … start + T - 1.
    """
    tokens, heads, size = q.shape
    share = heads // kv_heads
    for item in prange(tokens * kv_heads):
        dealt = _from_both_ends(item, tokens * kv_heads)
        t, kv_head = dealt // kv_heads, dealt % kv_heads
        seen = start + t + 1
        row = np.empty(size, np.float32)
        scores = np.empty((share, seen), np.float32)
        first = kv_head * share
        for j in range(seen):
            decode(keys, (j * kv_heads + kv_head) * row_units, size, row)
            for h in range(share):
                scores[h, j] = _dot(q[t, first + h], row) * scale
        for h in range(share):
            _softmax_weights(scores[h])
            out[t, first + h, :] = 0
        for j in range(seen):
            decode(values, (j * kv_heads + kv_head) * row_units, size, row)
            for h in range(share):
                _add_scaled(out[t, first + h], row, scores[h, j])


ATTENTION = {
    "F32": specialise(attention, _SIGNATURE.format(unit="float32"), decode_f32),
    "F16": specialise(attention, _SIGNATURE.format(unit="uint16"), decode_f16),
    "Q8_0": specialise(attention, _SIGNATURE.format(unit="uint8"), decode_q8_0),
}
