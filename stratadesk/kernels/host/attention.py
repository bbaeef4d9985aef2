"""Causal attention over a KV cache kept in the bytes of a tensor format.

`attention` is a template over `decode` (see `kernel.specialise`): the cache of one layer is a
flat array of storage units, one row per token and kv head, in F32, F16 or Q8_0.
"""

from typing import Any

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.decode_plain import decode_f16, decode_f32, decode_q8_0
from stratadesk.kernels.host.kernel import Kernel, specialise
from stratadesk.kernels.host.sums import (
    NO_SINK,
    add_scaled,
    dot,
    from_both_ends,
    softmax_weights,
)

_SIGNATURE = (
    "void(float32[:, :, ::1], {unit}[::1], {unit}[::1], int64, int64, int64, float32,"
    " int64, float32[::1], float32[:, :, ::1])"
)


@njit
def decode(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Stand for the cache format's decoder in the template below."""


def attention(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    row_units: int,
    kv_heads: int,
    start: int,
    scale: float,
    window: int,
    sinks: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[t, h] = softmax(scale · q[t, h]·K) V over the tokens up to start + t.

    q and out are [T, H, d]; query head h reads kv head h // (H / kv_heads); `keys` and `values`
    hold the tokens 0 … start + T - 1, of which a query sees the last `window`, 0 for all.
    `sinks` [H] are scores without a value, not scaled; empty for none.
    """
    tokens, heads, size = q.shape
    share = heads // kv_heads
    for item in prange(tokens * kv_heads):
        dealt = from_both_ends(item, tokens * kv_heads)
        t, kv_head = dealt // kv_heads, dealt % kv_heads
        end = start + t + 1
        begin = max(0, end - window) if window > 0 else 0
        row = np.empty(size, np.float32)
        scores = np.empty((share, end - begin), np.float32)
        first = kv_head * share
        for j in range(begin, end):
            decode(keys, (j * kv_heads + kv_head) * row_units, size, row)
            for h in range(share):
                scores[h, j - begin] = dot(q[t, first + h], row) * scale
        for h in range(share):
            softmax_weights(scores[h], sinks[first + h] if sinks.size else NO_SINK)
            out[t, first + h, :] = 0
        for j in range(begin, end):
            decode(values, (j * kv_heads + kv_head) * row_units, size, row)
            for h in range(share):
                add_scaled(out[t, first + h], row, scores[h, j - begin])


def attention_work(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    row_units: int,
    kv_heads: int,
    start: int,
    *_: object,
) -> int:
    """Values of q times the keys and values that each meets at most."""
    return 2 * q.size * (start + len(q))


def _of(unit: str, decode: Any) -> Kernel:
    return specialise(attention, _SIGNATURE.format(unit=unit), decode, work=attention_work)


ATTENTION = {
    "F32": _of("float32", decode_f32),
    "F16": _of("uint16", decode_f16),
    "Q8_0": _of("uint8", decode_q8_0),
}
