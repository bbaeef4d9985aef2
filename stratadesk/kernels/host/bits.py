"""Bit-level reads that plain Numba code cannot express: reinterpreted words and half floats.

No function here allows fused or reordered float arithmetic, so values are those of the format's
definition bit for bit.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# 2**112 as float32 bits: moves a half's exponent bias (15) to a float's (127).
_REBIAS = np.uint32(0x77800000)
_HALF_NOT_FINITE = np.uint32(0x0F800000)
_FLOAT_NOT_FINITE = np.uint32(0x7F800000)


@intrinsic
def float_from_bits(typingctx: Any, bits: Any) -> Any:
    """Reinterpret a uint32 as float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


@intrinsic
def bits_from_float(typingctx: Any, value: Any) -> Any:
    """Reinterpret a float32 as uint32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@intrinsic
def pointer_to(typingctx: Any, address: Any) -> Any:
    """Turn an address (int64) into the pointer that `numba.carray` takes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@njit
def half_to_float(half: int) -> np.float32:
    """Convert the 16 bits of an IEEE half (uint16 or wider) to float32, subnormals included."""
    # Every step is cast: Numba widens uint32 to uint64, and a loop over halves to half the lanes.
    bits = np.uint32(half)
    magnitude = np.uint32(np.uint32(bits & np.uint32(0x7FFF)) << np.uint32(13))
    rebased = bits_from_float(float_from_bits(magnitude) * float_from_bits(_REBIAS))
    exponent = _FLOAT_NOT_FINITE if magnitude >= _HALF_NOT_FINITE else np.uint32(0)
    sign = np.uint32(np.uint32(bits & np.uint32(0x8000)) << np.uint32(16))
    value: np.float32 = float_from_bits(np.uint32(np.uint32(rebased | exponent) | sign))
    return value


def _word(bits: int) -> Any:
    """The typing of a read of `bits` bits from a byte of a uint8 array, as uint32."""

    def typed(typingctx: Any, data: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            loaded = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()))
            loaded.align = 1
            return loaded if bits == 32 else builder.zext(loaded, ir.IntType(32))

        return types.uint32(data, types.int64), codegen

    return typed


word_at = intrinsic(_word(16))
"""Read the little-endian uint16 at byte `index` of a uint8 array as uint32."""

word32_at = intrinsic(_word(32))
"""Read the little-endian uint32 at byte `index` of a uint8 array."""


@njit
def half_at(data: np.ndarray, index: int) -> np.float32:
    """Read the half float at byte `index` of a uint8 array as float32."""
    value: np.float32 = half_to_float(word_at(data, index))
    return value
