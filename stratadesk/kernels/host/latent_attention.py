"""Multi-head latent attention: one compressed row per token serves as key and value of all heads.

`latent_attention` is a template over `decode` (see `kernel.specialise`): the cache of one layer
is a flat array of storage units, one row of latent and rotated values per token. `transposed` is
one over `decode` and `UNIT`.
"""

from collections.abc import Iterator

import numpy as np
from numba import carray, njit, prange

from stratadesk.kernels.host.bits import pointer_to
from stratadesk.kernels.host.decode_plain import decode_f16, decode_f32, decode_q8_0
from stratadesk.kernels.host.elementwise import sum_of_squares
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kernel import Kernel, kernel, specialise
from stratadesk.kernels.host.sums import add_scaled, dot, from_both_ends, softmax_weights

HEADS_AT_ONCE = 4
"""Heads that share the decoding of a cached row; the rest of the heads is work for others."""

# Stands for a format's storage unit in the templates below.
UNIT = np.uint8

_ATTENTION_SIGNATURE = (
    "void(float32[:, :, ::1], {unit}[::1], int64, int64, float32, float32[:, :, ::1])"
)
_TRANSPOSED_SIGNATURE = (
    "void(int64[::1], int64, int64, float32[:, :, ::1], int64, float32[:, :, ::1])"
)


@njit
def decode(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Stand for a format's decoder in the templates below."""


def latent_attention(
    q: np.ndarray, cache: np.ndarray, row_units: int, start: int, scale: float, out: np.ndarray
) -> None:
    """out[t, h] = softmax(scale · q[t, h]·R) L over the tokens up to start + t.

    q is [T, H, c + R], out [T, H, c]; `cache` holds the rows R [c + R] of the tokens
    0 … start + T - 1, whose first c values are L.
    """
    tokens, heads, size = q.shape
    latent = out.shape[2]
    groups = (heads + HEADS_AT_ONCE - 1) // HEADS_AT_ONCE
    for item in prange(tokens * groups):
        dealt = from_both_ends(item, tokens * groups)
        t, first = dealt // groups, dealt % groups * HEADS_AT_ONCE
        share = min(HEADS_AT_ONCE, heads - first)
        seen = start + t + 1
        row = np.empty(size, np.float32)
        scores = np.empty((share, seen), np.float32)
        for j in range(seen):
            decode(cache, j * row_units, size, row)
            for h in range(share):
                scores[h, j] = dot(q[t, first + h], row) * scale
        for h in range(share):
            softmax_weights(scores[h])
            out[t, first + h, :] = 0
        for j in range(seen):
            decode(cache, j * row_units, size, row)
            for h in range(share):
                add_scaled(out[t, first + h], row[:latent], scores[h, j])


def transposed(
    addresses: np.ndarray,
    row_units: int,
    rows: int,
    x: np.ndarray,
    columns: int,
    y: np.ndarray,
) -> None:
    """y[t, h, :columns] = W_hᵀ x[t, h, :rows], W_h [rows, columns] at each head's address.

    x is [T, H, ≥ rows], y [T, H, ≥ columns]. A row is decoded once for all tokens.
    """
    for h in prange(addresses.size):
        data = carray(pointer_to(addresses[h]), (rows * row_units,), UNIT)
        row = np.empty(columns, np.float32)
        for t in range(x.shape[0]):
            y[t, h, :columns] = 0
        for r in range(rows):
            decode(data, r * row_units, columns, row)
            for t in range(x.shape[0]):
                add_scaled(y[t, h, :columns], row, x[t, h, r])


@kernel("void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1], int64)", parallel=False)
def rotate_neighbours(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, first: int) -> None:
    """Rotate pairs (v[first + 2i], v[first + 2i + 1]) of x [T, H, d] in place (NORM form)."""
    for t in range(x.shape[0]):
        for h in range(x.shape[1]):
            for i in range(cos.shape[1]):
                at = first + 2 * i
                a, b = x[t, h, at], x[t, h, at + 1]
                x[t, h, at] = a * cos[t, i] - b * sin[t, i]
                x[t, h, at + 1] = a * sin[t, i] + b * cos[t, i]


@kernel("void(float32[:, ::1], float32[::1], float32)", parallel=False)
def norm_prefix(x: np.ndarray, weight: np.ndarray, eps: float) -> None:
    """RMS norm of the first values of every row, as many as `weight` has, in place."""
    width = np.float32(weight.size)
    for r in range(x.shape[0]):
        factor = np.float32(1) / np.sqrt(sum_of_squares(x[r, : weight.size]) / width + eps)
        for i in range(weight.size):
            x[r, i] = x[r, i] * factor * weight[i]


LATENT_ATTENTION = {
    "F32": specialise(latent_attention, _ATTENTION_SIGNATURE.format(unit="float32"), decode_f32),
    "F16": specialise(latent_attention, _ATTENTION_SIGNATURE.format(unit="uint16"), decode_f16),
    "Q8_0": specialise(latent_attention, _ATTENTION_SIGNATURE.format(unit="uint8"), decode_q8_0),
}
"""The attention kernel for each format of the cache."""

TRANSPOSED: dict[str, Kernel] = {
    name: specialise(transposed, _TRANSPOSED_SIGNATURE, item.decode, UNIT=np.dtype(item.unit).type)
    for name, item in FORMATS.items()
}
"""The transposed product for each tensor format."""


def kernels_for(formats: set[str], kv_format: str) -> Iterator[Kernel]:
    """The kernels of this module that depend on formats; `TRANSPOSED` are not needed by most."""
    yield LATENT_ATTENTION[kv_format]
