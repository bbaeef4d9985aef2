"""Kernels that work token by token: norms, rotary embedding, gates, SwiGLU, weighted sums.

All arrays are float32 and C-contiguous. What is cheap runs on one thread: waking the others costs
more than it saves while decoding. Formulas: docs of each family in
`stratadesk/engine/architectures`.
"""

import math

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.kernel import SUM_MATH, kernel

EXP_STEPS = 16
"""An exponential takes about as long as so many steps of work (`kernel.SMALL`)."""


@njit(fastmath=SUM_MATH)
def sum_of_squares(x: np.ndarray) -> np.float32:
    """Sum of x² over a vector."""
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * x[i]
    return total


@njit
def sigmoid(x: float) -> np.float32:
    """1 / (1 + e^-x) in float32."""
    return np.float32(1) / (np.float32(1) + math.exp(-x))


@njit
def silu(x: float) -> np.float32:
    """X · sigmoid(x) in float32."""
    return x / (np.float32(1) + math.exp(-x))


@kernel("void(float32[:, ::1], float32[::1], float32, float32[:, ::1])", parallel=False)
def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray) -> None:
    """out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight for every row; out may be x."""
    width = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        factor = np.float32(1) / np.sqrt(sum_of_squares(x[r]) / width + eps)
        for i in range(x.shape[1]):
            out[r, i] = x[r, i] * factor * weight[i]


@kernel(
    "void(float32[:, ::1], float32[:, ::1], float32[::1], float32, float32[:, ::1])", parallel=False
)
def rms_norm_silu_gate(
    x: np.ndarray, gate: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray
) -> None:
    """out[r] = rms_norm(x[r]) · silu(gate[r]) for every row."""
    width = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        factor = np.float32(1) / np.sqrt(sum_of_squares(x[r]) / width + eps)
        for i in range(x.shape[1]):
            out[r, i] = x[r, i] * factor * weight[i] * silu(gate[r, i])


@kernel("void(int64, float64[::1], float32, float32[:, ::1], float32[:, ::1])", parallel=False)
def rope_table(
    start: int, frequencies: np.ndarray, magnitude: float, cos: np.ndarray, sin: np.ndarray
) -> None:
    """Fill cos and sin [T, pairs] of the angles position · frequency, positions from `start`."""
    for t in range(cos.shape[0]):
        for i in range(frequencies.size):
            angle = np.float64(start + t) * frequencies[i]
            cos[t, i] = np.float32(math.cos(angle)) * magnitude
            sin[t, i] = np.float32(math.sin(angle)) * magnitude


@kernel("void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1])", parallel=False)
def rotate_halves(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> None:
    """Rotate pairs (v[i], v[i + pairs]) of every head of x [T, H, d] in place (NEOX form)."""
    pairs = cos.shape[1]
    for t in range(x.shape[0]):
        for h in range(x.shape[1]):
            for i in range(pairs):
                a, b = x[t, h, i], x[t, h, i + pairs]
                x[t, h, i] = a * cos[t, i] - b * sin[t, i]
                x[t, h, i + pairs] = a * sin[t, i] + b * cos[t, i]


@kernel("void(float32[:, ::1], float32[:, ::1])", work=lambda gate_up, out: EXP_STEPS * out.size)
def swiglu(gate_up: np.ndarray, out: np.ndarray) -> None:
    """Out [n, F] = silu(gate) · up, where gate_up [n, 2F] holds gate first."""
    width = out.shape[1]
    for r in prange(out.shape[0]):
        for i in range(width):
            out[r, i] = silu(gate_up[r, i]) * gate_up[r, width + i]


@kernel("void(float32[:, ::1], float32[:, ::1])", parallel=False)
def multiply_sigmoid(x: np.ndarray, gate: np.ndarray) -> None:
    """X ·= sigmoid(gate), element by element."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[r, i] *= sigmoid(gate[r, i])


@kernel("void(float32[:, ::1], float32[:, ::1])", parallel=False)
def add(x: np.ndarray, y: np.ndarray) -> None:
    """X += y, element by element."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[r, i] += y[r, i]


@kernel("void(float32[:, ::1], float32[::1])", parallel=False)
def add_bias(x: np.ndarray, bias: np.ndarray) -> None:
    """X[r] += bias for every row."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[r, i] += bias[i]


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1])", parallel=False)
def add_gated(x: np.ndarray, y: np.ndarray, gate: np.ndarray) -> None:
    """X += y · sigmoid(gate), with one gate value per row, gate [n, 1]."""
    for r in range(x.shape[0]):
        factor = sigmoid(gate[r, 0])
        for i in range(x.shape[1]):
            x[r, i] += y[r, i] * factor


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1])", parallel=False)
def weighted_sum(y: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """out[t] = Σ_k weights[t, k] · y[t·K + k], in router order."""
    used = weights.shape[1]
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            total = np.float32(0)
            for k in range(used):
                total += weights[t, k] * y[t * used + k, i]
            out[t, i] = total
