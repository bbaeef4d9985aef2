"""Decoders of IQ2_XXS, IQ2_XS and IQ2_S: grid entries of eight magnitudes, with signs.

The contract is that of `decode_plain`; 256 values a block. Grids and block layouts are those of
the `gguf` package; the order of the float operations is part of the definition.
"""

import numpy as np
from gguf.quants import IQ2_S, IQ2_XS, IQ2_XXS
from numba import njit

from stratadesk.kernels.host.bits import half_at, word32_at, word_at
from stratadesk.kernels.host.grids import SIGNS, grid_words, signs_of
from stratadesk.kernels.host.lane_tables import grid_lanes, negate_where
from stratadesk.kernels.host.lanes import signed_floats, store

XXS_GRID = grid_words(IQ2_XXS, np.uint64)
XS_GRID = grid_words(IQ2_XS, np.uint64)
S_GRID = grid_words(IQ2_S, np.uint64)

_HALF, _QUARTER = np.float32(0.5), np.float32(0.25)


@njit
def decode_iq2_xxs(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ2_XXS: 66 bytes: half scale; per 32 values 4 indices and a word of signs and sub-scale."""
    for block in range(count // 256):
        scale = half_at(data, start + 66 * block)
        for group in range(8):
            at = start + 66 * block + 2 + 8 * group
            indices = (data[at], data[at + 1], data[at + 2], data[at + 3])
            packed = word32_at(data, at + 4)
            values = negate_where(grid_lanes(XXS_GRID, indices), signs_of(packed))
            factor = scale * (_HALF + np.float32(packed >> np.uint32(28))) * _QUARTER
            store(out, 256 * block + 32 * group, signed_floats(values) * factor)


@njit
def _nibble_factor(scale: np.float32, packed: int, strip: int) -> np.float32:
    """scale · (0.5 + n) / 4, n the nibble of the byte `packed` for an even or odd `strip`."""
    nibble = (packed >> (4 * (strip % 2))) & 15
    return scale * (_HALF + np.float32(nibble)) * _QUARTER


@njit
def decode_iq2_xs(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ2_XS: 74 bytes: half scale, 32 words of index and signs, 16 sub-scales of 4 bits."""
    for block in range(count // 256):
        at = start + 74 * block
        scale = half_at(data, at)
        for strip in range(16):
            first, second = word_at(data, at + 2 + 4 * strip), word_at(data, at + 4 + 4 * strip)
            entries = grid_lanes(XS_GRID, (first & 511, second & 511))
            signs = np.uint32(SIGNS[first >> 9]) | (np.uint32(SIGNS[second >> 9]) << 8)
            factor = _nibble_factor(scale, data[at + 66 + strip // 2], strip)
            values = signed_floats(negate_where(entries, signs)) * factor
            store(out, 256 * block + 16 * strip, values)


@njit
def decode_iq2_s(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ2_S: 82 bytes: half scale, 32 low bytes of indices, 32 of signs, 8 of high bits, 8 scales.

    A sub-scale of 4 bits holds for 16 values.
    """
    for block in range(count // 256):
        at = start + 82 * block
        scale = half_at(data, at)
        for strip in range(16):
            high = np.int64(data[at + 66 + strip // 2]) >> (4 * (strip % 2))
            first = np.int64(data[at + 2 + 2 * strip]) | ((high & 3) << 8)
            second = np.int64(data[at + 3 + 2 * strip]) | ((high & 12) << 6)
            signs = word_at(data, at + 34 + 2 * strip)
            factor = _nibble_factor(scale, data[at + 74 + strip // 2], strip)
            values = negate_where(grid_lanes(S_GRID, (first, second)), signs)
            store(out, 256 * block + 16 * strip, signed_floats(values) * factor)
