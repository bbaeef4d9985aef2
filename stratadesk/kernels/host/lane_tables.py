"""What decoders look up and set bit by bit, on the lanes of `lanes`."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stratadesk.kernels.host.lanes import Lanes, splat, vector_pointer

_INDEX = ir.IntType(32)


@intrinsic
def pick(typingctx: Any, table: Any, lanes: Any) -> Any:
    """Look up each lane, an index below 16, in a table of 16 bytes."""
    # Written out lane by lane: LLVM makes one byte permutation of 16 such look-ups.
    vector = ir.VectorType(ir.IntType(8), 16)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(ir.IntType(64), 0)
        values = builder.load(
            vector_pointer(context, builder, signature.args[0], args[0], zero, vector)
        )
        values.align = 1
        nibble = splat(builder, ir.Constant(ir.IntType(8), 15), lanes.count)
        indices = builder.and_(args[1], nibble)
        out = ir.Constant(ir.VectorType(ir.IntType(8), lanes.count), ir.Undefined)
        for lane in range(lanes.count):
            at = ir.Constant(_INDEX, lane)
            index = builder.zext(builder.extract_element(indices, at), _INDEX)
            out = builder.insert_element(out, builder.extract_element(values, index), at)
        return out

    return lanes(table, lanes), codegen


@intrinsic
def grid_lanes(typingctx: Any, grid: Any, indices: Any) -> Any:
    """Put side by side the entries of `grid` at a tuple of `indices` (integers).

    `grid` holds one entry of 4 or 8 bytes per uint32 or uint64.
    """
    entry_bits = grid.dtype.bitwidth
    count = indices.count * entry_bits // 8

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        out = ir.Constant(ir.VectorType(ir.IntType(entry_bits), indices.count), ir.Undefined)
        for lane in range(indices.count):
            entry = builder.load(builder.gep(array.data, [builder.extract_value(args[1], lane)]))
            out = builder.insert_element(out, entry, ir.Constant(_INDEX, lane))
        return builder.bitcast(out, ir.VectorType(ir.IntType(8), count))

    wide = types.UniTuple(types.int64, indices.count)
    return Lanes(types.uint8, count)(grid, wide), codegen


def _one_bit_lanes(builder: Any, bits: Any, count: int) -> Any:
    if bits.type.width > count:
        bits = builder.trunc(bits, ir.IntType(count))
    return builder.bitcast(bits, ir.VectorType(ir.IntType(1), count))


@intrinsic(prefer_literal=True)
def bit_lanes(typingctx: Any, bits: Any, count: Any) -> Any:
    """Spread the lowest `count` (a literal) bits of an integer: lane i is bit i, 0 or 1."""
    lanes = count.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        single = _one_bit_lanes(builder, args[0], lanes)
        return builder.zext(single, ir.VectorType(ir.IntType(8), lanes))

    return Lanes(types.uint8, lanes)(bits, count), codegen


@intrinsic
def negate_where(typingctx: Any, lanes: Any, bits: Any) -> Any:
    """Change the sign of the byte lanes whose bit in the integer `bits` is 1."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        negative = _one_bit_lanes(builder, args[1], lanes.count)
        return builder.select(negative, builder.neg(args[0]), args[0])

    return lanes(lanes, bits), codegen
