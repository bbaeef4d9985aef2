"""A linear layer as files hold it: a weight and, in some, a bias."""

from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.ops import Ops, Tensor


class Projection:
    """y = W x + b, with b where the file has `<name>.bias` beside `<name>.weight`."""

    def __init__(self, table: TensorTable, name: str, rows: int, columns: int) -> None:
        self.weight = table.weight(f"{name}.weight", rows, columns)
        self.bias = table.optional_vector(f"{name}.bias", rows)

    def __call__(self, ops: Ops, x: Tensor) -> Tensor:
        """[T, columns] → [T, rows]."""
        y = ops.linear(self.weight, x)
        if self.bias is not None:
            ops.add_bias(y, self.bias)
        return y
