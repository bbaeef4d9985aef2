"""The CUDA backend: every operation of a forward pass as kernel launches on one stream.

`CudaOps` implements `stratadesk.engine.ops.Ops` for the families that `SUPPORTED` names. Nothing
here waits for the device or allocates, so a pass can be captured into a graph: where its tokens
stand is read from device memory (`StepState`), not from the arguments `tokens` and `start`.
"""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import WARP
from stratadesk.kernels.cuda.ops_delta import DeltaOps
from stratadesk.kernels.cuda.ops_mixers import DeviceRope, MixerOps
from stratadesk.kernels.cuda.ops_products import MOST_TOKENS, DeviceExperts, ProductOps
from stratadesk.kernels.cuda.ops_sampling import SamplingOps
from stratadesk.kernels.cuda.tensors import DeviceTensor

__all__ = ["MOST_TOKENS", "SUPPORTED", "CudaOps", "DeviceExperts", "DeviceRope"]

WIDE = 4 * WARP
"""Values that a warp takes at once where it takes four a lane."""

SUPPORTED = ("qwen35moe", "qwen3moe", "qwen3")
"""Architectures whose operations are all here."""


class CudaOps(ProductOps, MixerOps, DeltaOps, SamplingOps):
    """Operations on device tensors; see `stratadesk.engine.ops.Ops` for each one's meaning."""

    def rms_norm(self, x: DeviceTensor, weight: DeviceTensor, eps: float) -> DeviceTensor:
        """RMS norm over the last axis of x [..., n]."""
        return self._norm(x, weight, 0, eps, 0)

    def rms_norm_silu_gate(
        self, x: DeviceTensor, gate: DeviceTensor, weight: DeviceTensor, eps: float
    ) -> DeviceTensor:
        """rms_norm(x) · silu(gate) over the last axis; same shapes."""
        joined = self._joins_delta_rule(x, gate, weight, eps, by_sigmoid=False)
        return joined or self._norm(x, weight, gate, eps, 1)

    def rms_norm_sigmoid_gate(
        self, x: DeviceTensor, gate: DeviceTensor, weight: DeviceTensor, eps: float
    ) -> DeviceTensor:
        """rms_norm(x) · sigmoid(gate) over the last axis; same shapes."""
        joined = self._joins_delta_rule(x, gate, weight, eps, by_sigmoid=True)
        return joined or self._norm(x, weight, gate, eps, 2)

    def _norm(
        self, x: DeviceTensor, weight: DeviceTensor, gate: DeviceTensor | int, eps: float, kind: int
    ) -> DeviceTensor:
        width = weight.size
        out = self.workspace.tensor_and_fixed(*x.shape)
        if not kind and x.shape[0] * width == x.size and width % WIDE == 0 and width <= 64 * WIDE:
            form, given = ((x.shape[0],), min(1_024, width // 4)), (x, weight, out, out.fixed)
            self._launch(programs.VECTORS, "rms_norm_wide", *form, *given, width, float(eps))
            return out
        if width % WARP:
            out = DeviceTensor(out.address, out.shape)
        threads = min(1_024, -(-width // WARP) * WARP)
        self._launch(
            programs.VECTORS,
            "rms_norm",
            (x.size // width,),
            threads,
            *(x, weight, gate, out, out.fixed, width, x.size // x.shape[0], float(eps), kind),
        )
        return out

    def rope_table(
        self, start: int, count: int, frequencies: npt.NDArray[np.float64], magnitude: float
    ) -> DeviceRope:
        """Angles of `count` tokens from the step's position on; `start` is not looked at."""
        pairs = frequencies.size
        table = self.constant(frequencies.view(np.int32))
        cos, sin = self.workspace.tensor(count, pairs), self.workspace.tensor(count, pairs)
        where = (self.step.position, table, float(magnitude))
        self._launch(programs.VECTORS, "rope_table", (count,), pairs, *where, cos, sin, pairs)
        return DeviceRope(cos, sin)

    def rotate_halves(self, x: DeviceTensor, rope: DeviceRope) -> None:
        """NEOX rotation of x [T, H, d] in place."""
        tokens, heads, size = x.shape
        pairs = rope.cos.shape[1]
        threads = -(-pairs // WARP) * WARP
        grid = (heads, tokens)
        self._launch(
            programs.VECTORS,
            "rotate_halves",
            grid,
            threads,
            x,
            rope.cos,
            rope.sin,
            heads,
            size,
            pairs,
        )

    def multiply_sigmoid(self, x: DeviceTensor, gate: DeviceTensor) -> None:
        """x ·= sigmoid(gate), same number of values in the same order."""
        if not self._joins_attention(x, gate):
            self._each(programs.VECTORS, "multiply_sigmoid", x.size, x, gate)

    def add(self, x: DeviceTensor, y: DeviceTensor) -> None:
        """x += y. What y holds afterwards is not defined: it may be summed where it is made."""
        if not self._joins_product(x, y):
            self._each(programs.VECTORS, "add", x.size, x, y)

    def add_bias(self, x: DeviceTensor, bias: DeviceTensor) -> None:
        """x[t] += bias for every row of x [T, n]."""
        self._each(programs.VECTORS, "add_bias", x.size, x, bias, bias.size)

    def add_gated(self, x: DeviceTensor, y: DeviceTensor, gate: DeviceTensor) -> None:
        """x += y · sigmoid(gate), gate [T, 1]; y is not defined afterwards, as in `add`."""
        if self._joins_product(x, y, gate) or self._joins_experts(x, y, gate):
            return
        self._each(programs.VECTORS, "add_gated", x.size, x, y, gate, x.shape[-1])

    def copy(self, x: DeviceTensor, y: DeviceTensor) -> None:
        """x = y; y is not defined afterwards, as in `add`."""
        if self._lands_in(x, y):
            return
        self._each(programs.VECTORS, "copy", x.size, y, x)

    def concatenate(self, x: DeviceTensor, y: DeviceTensor) -> DeviceTensor:
        """Rows of x, each followed by y's; [T, n] and [T, m] → [T, n + m]."""
        out = self.workspace.tensor(x.shape[0], x.shape[1] + y.shape[1])
        self._each(programs.VECTORS, "concatenate", out.size, x, y, out, x.shape[1], y.shape[1])
        return out

    def advance(self, tokens: int) -> None:
        """`tokens` more tokens are held: move the step's position and swap the states' sides."""
        self._launch(programs.STEP, "advance", (1,), 1, self.step.position, tokens)
