"""Decoders of the K formats, super-blocks of 256 values: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

The contract is that of `decode_plain`. Block layouts are those of the `gguf` package's reference
dequantization; the order of the float operations is part of the definition.
"""

import numpy as np
from numba import njit

from stratadesk.kernels.host.bits import half_at
from stratadesk.kernels.host.lanes import floats, lanes_at, signed_floats, store


@njit
def decode_q2_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q2_K: 84 bytes: 16 bytes of sub-scale and sub-minimum, 64 of bit pairs, 2 halves."""
    for block in range(count // 256):
        at = start + 84 * block
        scale, minimum = half_at(data, at + 80), half_at(data, at + 82)
        for half in range(2):
            for strip in range(8):
                # A strip is 16 values under one scale; four pairs of strips share bytes.
                quants = lanes_at(data, at + 16 + 32 * half + 16 * (strip % 2), 16)
                packed = data[at + 8 * half + strip]
                factor = scale * np.float32(packed & 15)
                offset = minimum * np.float32(packed >> 4)
                values = floats((quants >> (2 * (strip // 2))) & 3) * factor - offset
                store(out, 256 * block + 128 * half + 16 * strip, values)


@njit
def _q3_scale(scales: np.ndarray, strip: int) -> int:
    """The 6-bit scale (minus 32) of strip 0 to 15: low nibbles in 8 bytes, bit pairs in 4."""
    low = (scales[strip % 8] >> (4 * (strip // 8))) & 15
    high = (scales[8 + strip % 4] >> (2 * (strip // 4))) & 3
    return int(low | (high << 4)) - 32


@njit
def decode_q3_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q3_K: 110 bytes: 32 of third bits, 64 of bit pairs, 12 of sub-scales, half; minus 4."""
    for block in range(count // 256):
        at = start + 110 * block
        scale = half_at(data, at + 108)
        scales = data[at + 96 : at + 108]
        for half in range(2):
            for strip in range(8):
                side, quarter = 16 * (strip % 2), strip // 2
                low = lanes_at(data, at + 32 + 32 * half + side, 16) >> (2 * quarter)
                third = lanes_at(data, at + side, 16) >> (4 * half + quarter)
                centred = ((low & 3) | ((third & 1) << 2)) - 4
                factor = scale * np.float32(_q3_scale(scales, 8 * half + strip))
                first = 256 * block + 128 * half + 16 * strip
                store(out, first, signed_floats(centred) * factor)


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
        at = start + 144 * block
        scale, minimum = half_at(data, at), half_at(data, at + 2)
        scales = data[at + 4 : at + 16]
        for pair in range(4):
            quants = lanes_at(data, at + 16 + 32 * pair, 32)
            for side in range(2):
                sub_scale, sub_min = _scale_and_min(scales, 2 * pair + side)
                factor, offset = scale * np.float32(sub_scale), minimum * np.float32(sub_min)
                values = floats((quants >> (4 * side)) & 15) * factor - offset
                store(out, 256 * block + 64 * pair + 32 * side, values)


@njit
def decode_q5_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q5_K: 176 bytes: as Q4_K with 32 bytes of fifth bits before the nibbles."""
    for block in range(count // 256):
        at = start + 176 * block
        scale, minimum = half_at(data, at), half_at(data, at + 2)
        scales = data[at + 4 : at + 16]
        fifths = lanes_at(data, at + 16, 32)
        for pair in range(4):
            quants = lanes_at(data, at + 48 + 32 * pair, 32)
            for side in range(2):
                sub_scale, sub_min = _scale_and_min(scales, 2 * pair + side)
                factor, offset = scale * np.float32(sub_scale), minimum * np.float32(sub_min)
                fifth = (fifths >> (2 * pair + side)) & 1
                values = floats(((quants >> (4 * side)) & 15) | (fifth << 4)) * factor - offset
                store(out, 256 * block + 64 * pair + 32 * side, values)


@njit
def decode_q6_k(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q6_K: 210 bytes: 128 low nibbles, 64 bytes of high bit pairs, 16 signed scales, half."""
    for block in range(count // 256):
        at = start + 210 * block
        scale = half_at(data, at + 208)
        for half in range(2):
            for strip in range(8):
                # A strip is 16 values under one scale; quarters of 32 share bytes.
                side, quarter = 16 * (strip % 2), strip // 2
                low = lanes_at(data, at + 64 * half + 32 * (quarter % 2) + side, 16)
                pairs = lanes_at(data, at + 128 + 32 * half + side, 16) >> (2 * quarter)
                nibbles = (low >> (4 * (quarter // 2))) & 15
                centred = (nibbles | ((pairs & 3) << 4)) - 32
                factor = scale * np.float32(np.int8(data[at + 192 + 8 * half + strip]))
                first = 256 * block + 128 * half + 16 * strip
                store(out, first, signed_floats(centred) * factor)
