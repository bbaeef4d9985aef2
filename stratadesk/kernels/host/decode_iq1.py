"""Decoders of IQ1_S and IQ1_M: grid entries of eight values -1, 0 or 1, moved by an eighth.

The contract is that of `decode_plain`; 256 values a block. Grids and block layouts are those of
the `gguf` package. Values are computed in eighths: scale/8 · (8·grid ± 1) is rounded as
scale · (grid ± 1/8) is, since a division by 8 loses nothing here.
"""

import numpy as np
from gguf.quants import IQ1_S
from numba import njit

from stratadesk.kernels.host.bits import half_at, half_to_float, word_at
from stratadesk.kernels.host.grids import grid_words
from stratadesk.kernels.host.lane_tables import bit_lanes, grid_lanes
from stratadesk.kernels.host.lanes import signed_floats, store

_EIGHTH = np.float32(IQ1_S.delta)
EIGHTHS = grid_words(IQ1_S, np.uint64, round(1 / IQ1_S.delta))


@njit
def decode_iq1_s(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ1_S: 50 bytes: half scale, 32 low bytes of indices, 8 words of high bits, scale, sign."""
    for block in range(count // 256):
        at = start + 50 * block
        scale = half_at(data, at)
        for group in range(8):
            q = data[at + 2 + 4 * group : at + 6 + 4 * group]
            packed = np.int64(word_at(data, at + 34 + 2 * group))
            low = (q[0] | ((packed & 7) << 8), q[1] | ((packed & 0o70) << 5))
            top = (q[2] | ((packed & 0o700) << 2), q[3] | ((packed & 0o7000) >> 1))
            moved = grid_lanes(EIGHTHS, low + top) + (1 - 2 * (packed >> 15))
            factor = scale * np.float32(2 * ((packed >> 12) & 7) + 1) * _EIGHTH
            store(out, 256 * block + 32 * group, signed_floats(moved) * factor)


@njit
def _scattered_scale(data: np.ndarray, at: int) -> np.float32:
    """The half whose nibbles, lowest first, are the highest ones of four words."""
    bits = np.uint32(0)
    for i in range(4):
        bits |= (word_at(data, at + 2 * i) >> np.uint32(12)) << np.uint32(4 * i)
    value: np.float32 = half_to_float(np.uint32(bits))
    return value


@njit
def decode_iq1_m(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ1_M: 56 bytes: 32 low bytes of indices, 16 of high bits and signs, 4 words of scales."""
    for block in range(count // 256):
        at = start + 56 * block
        scale = _scattered_scale(data, at + 48)
        for strip in range(16):
            high = np.int64(data[at + 32 + strip])
            first = data[at + 2 * strip] | ((high & 7) << 8)
            second = data[at + 2 * strip + 1] | ((high & 0x70) << 4)
            signs = ((high >> 3) & 1) * 0xFF | ((high >> 7) * 0xFF00)
            moved = grid_lanes(EIGHTHS, (first, second)) + 1 - (bit_lanes(signs, 16) << 1)
            sub_scale = np.int64(word_at(data, at + 48 + 2 * (strip // 4))) >> (3 * (strip % 4))
            factor = scale * np.float32(2 * (sub_scale & 7) + 1) * _EIGHTH
            store(out, 256 * block + 16 * strip, signed_floats(moved) * factor)
