"""Decoders of IQ3_XXS and IQ3_S: grid entries of four magnitudes, with signs.

The contract is that of `decode_plain`; 256 values a block. Grids and block layouts are those of
the `gguf` package; the order of the float operations is part of the definition.
"""

import numpy as np
from gguf.quants import IQ3_S, IQ3_XXS
from numba import njit

from stratadesk.kernels.host.bits import half_at, word32_at
from stratadesk.kernels.host.grids import grid_words, signs_of
from stratadesk.kernels.host.lane_tables import grid_lanes, negate_where
from stratadesk.kernels.host.lanes import signed_floats, store

XXS_GRID = grid_words(IQ3_XXS, np.uint32)
S_GRID = grid_words(IQ3_S, np.uint32)

_HALF = np.float32(0.5)


@njit
def decode_iq3_xxs(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ3_XXS: 98 bytes: half scale, 64 indices, 8 words of signs and sub-scale."""
    for block in range(count // 256):
        at = start + 98 * block
        scale = half_at(data, at)
        for group in range(8):
            q = data[at + 2 + 8 * group : at + 10 + 8 * group]
            packed = word32_at(data, at + 66 + 4 * group)
            indices = (q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7])
            values = negate_where(grid_lanes(XXS_GRID, indices), signs_of(packed))
            factor = scale * (_HALF + np.float32(packed >> np.uint32(28))) * _HALF
            store(out, 256 * block + 32 * group, signed_floats(values) * factor)


@njit
def _ninth(low: int, high: int, position: int) -> int:
    """An index of nine bits: `low`, and bit `position` of the byte `high` above it."""
    return low | (((high >> position) & 1) << 8)


@njit
def decode_iq3_s(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ3_S: 110 bytes: half scale, 64 low bytes of indices, 8 of ninth bits, 32 of signs, scales.

    A sub-scale of 4 bits holds for 32 values.
    """
    for block in range(count // 256):
        at = start + 110 * block
        scale = half_at(data, at)
        for group in range(8):
            q = data[at + 2 + 8 * group : at + 10 + 8 * group]
            h = np.int64(data[at + 66 + group])
            low = (_ninth(q[0], h, 0), _ninth(q[1], h, 1), _ninth(q[2], h, 2), _ninth(q[3], h, 3))
            top = (_ninth(q[4], h, 4), _ninth(q[5], h, 5), _ninth(q[6], h, 6), _ninth(q[7], h, 7))
            entries = grid_lanes(S_GRID, low + top)
            signs = word32_at(data, at + 74 + 4 * group)
            nibble = (data[at + 106 + group // 2] >> (4 * (group % 2))) & 15
            factor = scale * np.float32(1 + 2 * nibble)
            values = signed_floats(negate_where(entries, signs)) * factor
            store(out, 256 * block + 32 * group, values)
