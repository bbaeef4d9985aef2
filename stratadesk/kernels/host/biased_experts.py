"""Experts with biases and a clamped activation (gpt-oss)."""

import numpy as np
from numba import prange

from stratadesk.kernels.host.elementwise import sigmoid
from stratadesk.kernels.host.kernel import kernel

LIMIT = np.float32(7)
SLOPE = np.float32(1.702)


@kernel("void(float32[:, ::1], int64, float32[:, ::1], int32[::1])")
def add_expert_bias(x: np.ndarray, column: int, bias: np.ndarray, experts: np.ndarray) -> None:
    """x[s, column + i] += bias[experts[s], i] for every routed entry s; bias [N, width]."""
    for s in prange(experts.size):
        row = bias[experts[s]]
        for i in range(row.size):
            x[s, column + i] += row[i]


@kernel("void(float32[:, ::1], float32[:, ::1])")
def clamped_swiglu(gate_up: np.ndarray, out: np.ndarray) -> None:
    """Out [n, F] = g · sigmoid(1.702 g) · (u + 1), where gate_up [n, 2F] holds g first.

    g is taken as at most 7, u as within ±7.
    """
    width = out.shape[1]
    for r in prange(out.shape[0]):
        for i in range(width):
            g = min(gate_up[r, i], LIMIT)
            u = max(-LIMIT, min(gate_up[r, width + i], LIMIT))
            out[r, i] = g * sigmoid(SLOPE * g) * (u + np.float32(1))
