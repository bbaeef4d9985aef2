"""Hyper-connections: several residual streams, mixed before and fed after each half of a layer.

x is [T, c·E], stream after stream. Formulas: `stratadesk/engine/architectures/qwen4exp.py`.
"""

import numpy as np
from numba import prange

from stratadesk.kernels.host.elementwise import sigmoid, silu, sum_of_squares
from stratadesk.kernels.host.kernel import kernel


@kernel("void(float32[:, ::1], float32[:, ::1])", parallel=False)
def spread(x: np.ndarray, out: np.ndarray) -> None:
    """Copy x [T, E] to every stream of out [T, c·E]."""
    width = x.shape[1]
    for t in range(x.shape[0]):
        for i in range(out.shape[1]):
            out[t, i] = x[t, i % width]


@kernel("void(float32[:, ::1], float32[::1], int64, float32, float32[:, ::1])")
def stream_norm(x: np.ndarray, weight: np.ndarray, count: int, eps: float, out: np.ndarray) -> None:
    """RMS norm of each of `count` streams by itself, times weight [c·E]; out may be x."""
    width = x.shape[1] // count
    for t in prange(x.shape[0]):
        for s in range(count):
            first = s * width
            squares = sum_of_squares(x[t, first : first + width])
            factor = np.float32(1) / np.sqrt(squares / np.float32(width) + eps)
            for i in range(first, first + width):
                out[t, i] = x[t, i] * factor * weight[i]


@kernel("void(float32[:, ::1], float32)", parallel=False)
def silu_of_share(x: np.ndarray, share: float) -> None:
    """X = silu(x / share), in place."""
    for t in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] = silu(x[t, i] / share)


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1])")
def mix(x: np.ndarray, gate: np.ndarray, out: np.ndarray) -> None:
    """out[t] = mean over streams of x · sigmoid(gate); x and gate [T, c·E], out [T, E]."""
    width = out.shape[1]
    count = x.shape[1] // width
    for t in prange(x.shape[0]):
        for i in range(width):
            total = np.float32(0)
            for s in range(count):
                at = s * width + i
                total += x[t, at] * sigmoid(gate[t, at])
            out[t, i] = total / np.float32(count)


@kernel("void(float32[:, ::1], float32[:, ::1], float32[:, ::1])", parallel=False)
def feed(x: np.ndarray, y: np.ndarray, inject: np.ndarray) -> None:
    """x[t, s] += y[t] · 2 · sigmoid(inject[t, s] / c) for every stream s; inject [T, c]."""
    width, count = y.shape[1], inject.shape[1]
    for t in range(x.shape[0]):
        for s in range(count):
            factor = np.float32(2) * sigmoid(inject[t, s] / np.float32(count))
            for i in range(width):
                x[t, s * width + i] += y[t, i] * factor
