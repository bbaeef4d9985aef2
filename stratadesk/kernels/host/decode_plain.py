"""Decoders of the formats without sub-scales: F32, F16, BF16, Q8_0, Q5_0, IQ4_NL.

A decoder writes `count` values (a multiple of the block) to `out`, float32, reading storage
units of `data` from unit `start` on. Units are float32 (F32), uint16 (F16, BF16) or bytes. Block
layouts are those of the `gguf` package's reference dequantization, which tests compare with.
"""

import numpy as np
from gguf.quants import IQ4_NL
from numba import njit

from stratadesk.kernels.host.bits import float_from_bits, half_at, half_to_float

IQ4_VALUES = np.array(IQ4_NL.kvalues, dtype=np.float32)


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
        packed = data[start + 34 * block : start + 34 * block + 34]
        scale = half_at(packed, 0)
        quants = packed[2:34]
        values = out[32 * block : 32 * block + 32]
        for i in range(32):
            values[i] = np.float32(np.int8(quants[i])) * scale


@njit
def decode_q5_0(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Q5_0: blocks of 32 in 22 bytes: half scale, 32 high bits, 16 bytes of nibbles; minus 16."""
    for block in range(count // 32):
        packed = data[start + 22 * block : start + 22 * block + 22]
        scale = half_at(packed, 0)
        high = np.uint32(0)
        for i in range(4):
            high |= np.uint32(packed[2 + i]) << np.uint32(8 * i)
        quants = packed[6:22]
        low = out[32 * block : 32 * block + 16]
        top = out[32 * block + 16 : 32 * block + 32]
        for i in range(16):
            bits = high >> np.uint32(i)
            low_high = (bits & np.uint32(1)) << np.uint32(4)
            top_high = ((bits >> np.uint32(16)) & np.uint32(1)) << np.uint32(4)
            quant = np.uint32(quants[i])
            low[i] = np.float32(np.int32((quant & np.uint32(15)) | low_high) - 16) * scale
            top[i] = np.float32(np.int32((quant >> np.uint32(4)) | top_high) - 16) * scale


@njit
def decode_iq4_nl(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ4_NL: blocks of 32 in 18 bytes: half scale, 16 bytes of indices into a value table."""
    for block in range(count // 32):
        packed = data[start + 18 * block : start + 18 * block + 18]
        scale = half_at(packed, 0)
        quants = packed[2:18]
        low = out[32 * block : 32 * block + 16]
        top = out[32 * block + 16 : 32 * block + 32]
        for i in range(16):
            low[i] = scale * IQ4_VALUES[quants[i] & 15]
            top[i] = scale * IQ4_VALUES[quants[i] >> 4]
