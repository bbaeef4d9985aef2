"""Decoders of the formats whose nibbles index 16 fixed values: IQ4_NL, IQ4_XS, MXFP4.

The contract is that of `decode_plain`. Values and block layouts are those of the `gguf` package.
"""

import numpy as np
from gguf.quants import IQ4_NL, MXFP4
from numba import njit

from stratadesk.kernels.host.bits import float_from_bits, half_at, word_at
from stratadesk.kernels.host.lane_tables import pick
from stratadesk.kernels.host.lanes import join, lanes_at, signed_floats, store

IQ4_VALUES = np.array(IQ4_NL.kvalues, np.int8).view(np.uint8)
MXFP4_VALUES = np.array(MXFP4.kvalues, np.int8).view(np.uint8)
"""Twice the values of E2M1."""


@njit
def decode_iq4_nl(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ4_NL: blocks of 32 in 18 bytes: half scale, 16 bytes of indices into a value table."""
    for block in range(count // 32):
        at = start + 18 * block
        quants = lanes_at(data, at + 2, 16)
        values = join(pick(IQ4_VALUES, quants & 15), pick(IQ4_VALUES, quants >> 4))
        store(out, 32 * block, signed_floats(values) * half_at(data, at))


@njit
def _iq4_xs_scale(data: np.ndarray, at: int, sub_block: int) -> int:
    """The 6-bit scale (minus 32) of sub-block 0 to 7 of the block at byte `at`."""
    low = (data[at + 4 + sub_block // 2] >> (4 * (sub_block % 2))) & 15
    high = (word_at(data, at + 2) >> np.uint32(2 * sub_block)) & np.uint32(3)
    return int(low | (high << 4)) - 32


@njit
def decode_iq4_xs(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """IQ4_XS: 136 bytes: half scale, 8 sub-scales of 6 bits (minus 32), 128 bytes of indices."""
    for block in range(count // 256):
        at = start + 136 * block
        scale = half_at(data, at)
        for sub_block in range(8):
            quants = lanes_at(data, at + 8 + 16 * sub_block, 16)
            values = join(pick(IQ4_VALUES, quants & 15), pick(IQ4_VALUES, quants >> 4))
            factor = scale * np.float32(_iq4_xs_scale(data, at, sub_block))
            store(out, 256 * block + 32 * sub_block, signed_floats(values) * factor)


@njit
def _half_power(exponent: int) -> np.float32:
    """Half of the E8M0 scale 2^(exponent - 127), down to the subnormal 2^-128."""
    below = exponent < 2
    bits = np.uint32(0x00200000 << exponent) if below else np.uint32((exponent - 1) << 23)
    value: np.float32 = float_from_bits(bits)
    return value


@njit
def decode_mxfp4(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """MXFP4: blocks of 32 in 17 bytes: exponent of the scale, 16 bytes of E2M1 values."""
    for block in range(count // 32):
        at = start + 17 * block
        quants = lanes_at(data, at + 1, 16)
        values = join(pick(MXFP4_VALUES, quants & 15), pick(MXFP4_VALUES, quants >> 4))
        store(out, 32 * block, signed_floats(values) * _half_power(np.int64(data[at])))
