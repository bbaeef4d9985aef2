"""Decoders of the formats with at most one scale a block: F32, F16, BF16, Q8_0, Q4_0 to Q5_1.

A decoder writes `count` values (a multiple of the block) to `out`, float32, reading storage
units of `data` from unit `start` on. Units are float32 (F32), uint16 (F16, BF16) or bytes. Block
layouts and the order of the float operations are those of the `gguf` package's reference
dequantization, which tests compare with.
"""

import numpy as np
from numba import njit

from stratadesk.kernels.host.bits import float_from_bits, half_at, half_to_float, word32_at
from stratadesk.kernels.host.lane_tables import bit_lanes
from stratadesk.kernels.host.lanes import floats, join, lanes_at, signed_floats, store


@njit
def decode_f32(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """F32: the values themselves; `data` is float32."""
    source = data[start : start + count]
    for i in range(count):
        out[i] = source[i]


@njit
def decode_f16(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """F16: IEEE halves; `data` is uint16."""
    source = data[start : start + count]
    for i in range(count):
        out[i] = half_to_float(source[i])


@njit
def decode_bf16(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """BF16: the upper halves of float32 words; `data` is uint16."""
    source = data[start : start + count]
    for i in range(count):
        out[i] = float_from_bits(np.uint32(source[i]) << np.uint32(16))


@njit
def decode_q8_0(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q8_0: blocks of 32 in 34 bytes: half scale, 32 signed bytes."""
    for block in range(count // 32):
        at = start + 34 * block
        quants = lanes_at(data, at + 2, 32)
        store(out, 32 * block, signed_floats(quants) * half_at(data, at))


@njit
def decode_q4_0(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q4_0: blocks of 32 in 18 bytes: half scale, 16 bytes of nibbles; minus 8."""
    for block in range(count // 32):
        at = start + 18 * block
        quants = lanes_at(data, at + 2, 16)
        centred = join(quants & 15, quants >> 4) - 8
        store(out, 32 * block, signed_floats(centred) * half_at(data, at))


@njit
def decode_q4_1(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q4_1: blocks of 32 in 20 bytes: half scale and minimum, 16 bytes of nibbles."""
    for block in range(count // 32):
        at = start + 20 * block
        quants = lanes_at(data, at + 4, 16)
        scaled = floats(join(quants & 15, quants >> 4)) * half_at(data, at)
        store(out, 32 * block, scaled + half_at(data, at + 2))


@njit
def decode_q5_0(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q5_0: blocks of 32 in 22 bytes: half scale, 32 high bits, 16 bytes of nibbles; minus 16."""
    for block in range(count // 32):
        at = start + 22 * block
        high = bit_lanes(word32_at(data, at + 2), 32)
        quants = lanes_at(data, at + 6, 16)
        centred = (join(quants & 15, quants >> 4) | (high << 4)) - 16
        store(out, 32 * block, signed_floats(centred) * half_at(data, at))


@njit
def decode_q5_1(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q5_1: blocks of 32 in 24 bytes: half scale and minimum, 32 high bits, 16 of nibbles."""
    for block in range(count // 32):
        at = start + 24 * block
        high = bit_lanes(word32_at(data, at + 4), 32)
        quants = lanes_at(data, at + 8, 16)
        scaled = floats(join(quants & 15, quants >> 4) | (high << 4)) * half_at(data, at)
        store(out, 32 * block, scaled + half_at(data, at + 2))
