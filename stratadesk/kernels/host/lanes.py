"""Values side by side in vector registers, for decoders: loads, stores and arithmetic.

Whether Numba turns a loop into vector instructions depends on guesses about its length. `Lanes`
are LLVM vectors: `lanes_at(data, at, 32) & 15` is a load and a mask on every processor, split
into the registers it has. Nothing here is fused or reordered.

Integer lanes are bytes that wrap around; whether they are signed is said where they become
floats. The other operand of an operator may be a single number of the same kind.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

_BYTE, _FLOAT = types.uint8, types.float32


class Lanes(types.Type):  # type: ignore[misc]
    """The Numba type of `count` values of type `element`, uint8 or float32."""

    def __init__(self, element: Any, count: int) -> None:
        super().__init__(name=f"Lanes({element}, {count})")
        self.element = element
        self.count = count


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lanes) -> None:
        element = manager.lookup(kind.element).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


def vector_pointer(context: Any, builder: Any, kind: Any, value: Any, index: Any, to: Any) -> Any:
    """LLVM code: the address of element `index` of an array as a pointer to the vector type `to`.

    `kind` and `value` are the array's Numba type and LLVM value.
    """
    array = context.make_array(kind)(context, builder, value)
    return builder.bitcast(builder.gep(array.data, [index]), to.as_pointer())


def splat(builder: Any, value: Any, count: int) -> Any:
    """LLVM code: a vector of `count` times `value`."""
    zero = ir.Constant(ir.IntType(32), 0)
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, zero)
    every = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
    return builder.shuffle_vector(first, first, every)


@intrinsic(prefer_literal=True)
def lanes_at(typingctx: Any, data: Any, index: Any, count: Any) -> Any:
    """Read `count` (a literal) bytes of a uint8 array from byte `index` on."""
    vector = ir.VectorType(ir.IntType(8), count.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = vector_pointer(context, builder, signature.args[0], args[0], args[1], vector)
        loaded = builder.load(place)
        loaded.align = 1
        return loaded

    return Lanes(_BYTE, count.literal_value)(data, types.int64, count), codegen


@intrinsic
def store(typingctx: Any, out: Any, index: Any, lanes: Any) -> Any:
    """Write float lanes to a float32 array from element `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = args[2].type
        place = vector_pointer(context, builder, signature.args[0], args[0], args[1], vector)
        builder.store(args[2], place).align = 4
        return context.get_dummy_value()

    return types.none(out, types.int64, lanes), codegen


@intrinsic
def floats(typingctx: Any, lanes: Any) -> Any:
    """Convert byte lanes, read as unsigned, to float lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.uitofp(args[0], ir.VectorType(ir.FloatType(), lanes.count))

    return Lanes(_FLOAT, lanes.count)(lanes), codegen


@intrinsic
def signed_floats(typingctx: Any, lanes: Any) -> Any:
    """Convert byte lanes, read as signed, to float lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sitofp(args[0], ir.VectorType(ir.FloatType(), lanes.count))

    return Lanes(_FLOAT, lanes.count)(lanes), codegen


@intrinsic
def join(typingctx: Any, first: Any, second: Any) -> Any:
    """Put the lanes of `second` behind as many of `first`."""
    count = 2 * first.count

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rising = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count)))
        return builder.shuffle_vector(*args, rising)

    return Lanes(first.element, count)(first, second), codegen


def _mixed(lanes: Any, single: Any) -> bool:
    if lanes.element == _FLOAT:
        return bool(single == _FLOAT)
    return isinstance(single, types.Integer)


def _result_type(left: Any, right: Any) -> Any:
    """The Lanes type of an operator's result, None where it has none."""
    if isinstance(left, Lanes) and isinstance(right, Lanes):
        return left if left == right else None
    if isinstance(left, Lanes):
        return left if _mixed(left, right) else None
    if isinstance(right, Lanes):
        return right if _mixed(right, left) else None
    return None


def _define(symbol: Callable[..., Any], of_bytes: str, of_floats: str | None = None) -> None:
    """Let `symbol` apply the builder's instruction of that name to lanes."""

    @type_callable(symbol)
    def typed(context: Any) -> Callable[[Any, Any], Any]:
        return _result_type

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = signature.return_type
        operands = []
        for kind, value in zip(signature.args, args, strict=True):
            if isinstance(kind, Lanes):
                operands.append(value)
            else:
                single = context.cast(builder, value, kind, lanes.element)
                operands.append(splat(builder, single, lanes.count))
        name = of_floats if lanes.element == _FLOAT else of_bytes
        assert name is not None
        return getattr(builder, name)(*operands)

    for kinds in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(symbol, *kinds)(lower)


_define(operator.and_, "and_")
_define(operator.or_, "or_")
_define(operator.rshift, "lshr")
_define(operator.lshift, "shl")
_define(operator.add, "add", "fadd")
_define(operator.sub, "sub", "fsub")
_define(operator.mul, "mul", "fmul")
