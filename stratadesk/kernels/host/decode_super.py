"""Decoders of the formats with super-blocks of 256 values: Q4_K, Q5_K, Q6_K, IQ4_XS.

The contract is that of `decode_plain`. Block layouts are those of the `gguf` package's reference
dequantization; the order of the float operations is part of the definition.
"""

import numpy as np
from numba import njit

from stratadesk.kernels.host.bits import half_at, word_at
from stratadesk.kernels.host.decode_plain import IQ4_VALUES


@njit
def _scale_and_min(scales: np.ndarray, sub_block: int) -> tuple[int, int]:
    """The 6-bit scale and minimum of sub-block 0 to 7, packed in 12 bytes."""
    if sub_block < 4:
        return scales[sub_block] & 63, scales[sub_block + 4] & 63
    packed = scales[sub_block + 4]
    scale = (packed & 15) | ((scales[sub_block - 4] >> 6) << 4)
    minimum = (packed >> 4) | ((scales[sub_block] >> 6) << 4)
    return scale, minimum


@njit
def decode_q4_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q4_K: 144 bytes: half scale and minimum, 12 bytes of sub-scales, 128 bytes of nibbles."""
    for block in range(count // 256):
        packed = data[start + 144 * block : start + 144 * block + 144]
        scale = half_at(packed, 0)
        minimum = half_at(packed, 2)
        scales = packed[4:16]
        for pair in range(4):
            low_scale, low_min = _scale_and_min(scales, 2 * pair)
            top_scale, top_min = _scale_and_min(scales, 2 * pair + 1)
            low_factor = scale * np.float32(low_scale)
            low_offset = minimum * np.float32(low_min)
            top_factor = scale * np.float32(top_scale)
            top_offset = minimum * np.float32(top_min)
            quants = packed[16 + 32 * pair : 48 + 32 * pair]
            first = 256 * block + 64 * pair
            low = out[first : first + 32]
            top = out[first + 32 : first + 64]
            for i in range(32):
                low[i] = low_factor * np.float32(quants[i] & 15) - low_offset
                top[i] = top_factor * np.float32(quants[i] >> 4) - top_offset


@njit
def decode_q5_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q5_K: 176 bytes: as Q4_K with 32 bytes of fifth bits before the nibbles."""
    for block in range(count // 256):
        packed = data[start + 176 * block : start + 176 * block + 176]
        scale = half_at(packed, 0)
        minimum = half_at(packed, 2)
        scales = packed[4:16]
        high = packed[16:48]
        for pair in range(4):
            low_scale, low_min = _scale_and_min(scales, 2 * pair)
            top_scale, top_min = _scale_and_min(scales, 2 * pair + 1)
            low_factor = scale * np.float32(low_scale)
            low_offset = minimum * np.float32(low_min)
            top_factor = scale * np.float32(top_scale)
            top_offset = minimum * np.float32(top_min)
            quants = packed[48 + 32 * pair : 80 + 32 * pair]
            first = 256 * block + 64 * pair
            low = out[first : first + 32]
            top = out[first + 32 : first + 64]
            for i in range(32):
                fifth = np.uint32(high[i]) >> np.uint32(2 * pair)
                low_quant = np.uint32(quants[i] & 15) | ((fifth & np.uint32(1)) << np.uint32(4))
                top_quant = np.uint32(quants[i] >> 4) | ((fifth & np.uint32(2)) << np.uint32(3))
                low[i] = low_factor * np.float32(low_quant) - low_offset
                top[i] = top_factor * np.float32(top_quant) - top_offset


@njit
def decode_q6_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q6_K: 210 bytes: 128 low nibbles, 64 bytes of high bit pairs, 16 signed scales, half."""
    for block in range(count // 256):
        packed = data[start + 210 * block : start + 210 * block + 210]
        scale = half_at(packed, 208)
        for half in range(2):
            first = 256 * block + 128 * half
            for strip in range(8):
                # A strip is 16 values under one scale; quarters of 32 share bytes.
                quarter = strip // 2
                side = 16 * (strip % 2)
                low_first = 64 * half + 32 * (quarter % 2) + side
                low = packed[low_first : low_first + 16]
                high_first = 128 + 32 * half + side
                high = packed[high_first : high_first + 16]
                factor = scale * np.float32(np.int8(packed[192 + 8 * half + strip]))
                low_shift = np.uint32(4 * (quarter // 2))
                high_shift = np.uint32(2 * quarter)
                values = out[first + 16 * strip : first + 16 * strip + 16]
                for i in range(16):
                    nibble = (np.uint32(low[i]) >> low_shift) & np.uint32(15)
                    pair = (np.uint32(high[i]) >> high_shift) & np.uint32(3)
                    quant = np.int32(nibble | (pair << np.uint32(4))) - np.int32(32)
                    values[i] = factor * np.float32(quant)


@njit
def decode_iq4_xs(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ4_XS: 136 bytes: half scale, 8 sub-scales of 6 bits (minus 32), 128 bytes of indices."""
    for block in range(count // 256):
        packed = data[start + 136 * block : start + 136 * block + 136]
        scale = half_at(packed, 0)
        high = word_at(packed, 2)
        for sub_block in range(8):
            low_bits = (packed[4 + sub_block // 2] >> (4 * (sub_block % 2))) & 15
            high_bits = (high >> np.uint32(2 * sub_block)) & np.uint32(3)
            sub_scale = np.int32(low_bits) | (np.int32(high_bits) << 4)
            factor = scale * np.float32(sub_scale - np.int32(32))
            quants = packed[8 + 16 * sub_block : 24 + 16 * sub_block]
            first = 256 * block + 32 * sub_block
            low = out[first : first + 16]
            top = out[first + 16 : first + 32]
            for i in range(16):
                low[i] = factor * IQ4_VALUES[quants[i] & 15]
                top[i] = factor * IQ4_VALUES[quants[i] >> 4]
