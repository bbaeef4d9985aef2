"""Hyper-connections: c residual streams in place of one, mixed before each half of a layer."""

from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.ops import Ops, Tensor


class StreamMixer:
    """Makes the input of half a layer from streams X_s, and feeds its output y back to them.

        f = rms(X_s) ⊙ norm, all streams flattened;  mixed = mean_s f_s ⊙ sigmoid(gate_s)
        gate = up · silu(down·f / c);                X_s += y · 2·sigmoid((inject·f)_s / c)

    The mixer before the head feeds nothing back and has no `inject`.
    """

    def __init__(
        self,
        header: Hyperparameters,
        table: TensorTable,
        prefix: str,
        width: int,
        eps: float,
        *,
        feeds: bool = True,
    ) -> None:
        self.eps = eps
        self.count = header.positive("hyper_connection.count")
        rank, wide = header.positive("hyper_connection.low_rank"), self.count * width
        self.norm = table.vector(f"{prefix}norm.weight", wide)
        self.down = table.weight(f"{prefix}down.weight", rank, wide)
        self.up = table.weight(f"{prefix}up.weight", wide, rank)
        self.inject: Tensor | None = None
        if feeds:
            self.inject = table.weight(f"{prefix}inject.weight", self.count, wide)

    def __call__(self, ops: Ops, x: Tensor) -> tuple[Tensor, Tensor]:
        """[T, c·E] → the half-layer's input [T, E], and what `feed` needs."""
        gate = (self.down, self.up)
        return ops.mix_streams(x, self.norm, gate, self.inject, self.count, self.eps)
