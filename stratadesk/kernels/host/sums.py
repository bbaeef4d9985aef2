"""The small sums that attention kernels are made of, and how their work is dealt to threads.

A sum runs over the values of one row in an order of its own, whatever else is computed with it.
"""

import math

import numpy as np
from numba import njit

from stratadesk.kernels.host.kernel import SUM_MATH

NO_SINK = np.float32(-np.inf)
"""A score beside all others that takes part in no softmax."""


@njit(fastmath=SUM_MATH)
def dot(x: np.ndarray, y: np.ndarray) -> np.float32:
    """Σ x·y over vectors of the same length."""
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@njit(fastmath=SUM_MATH)
def add_scaled(out: np.ndarray, x: np.ndarray, factor: float) -> None:
    """Out += x · factor over the length of out."""
    for i in range(out.size):
        out[i] += x[i] * factor


@njit
def softmax_weights(scores: np.ndarray, sink: np.float32 = NO_SINK) -> None:
    """Replace scores by softmax weights, in place, float32; `sink` is one more score.

    A sink of minus infinity adds exactly nothing.
    """
    top = max(scores[0], sink)
    for j in range(1, scores.size):
        top = max(top, scores[j])
    total = math.exp(sink - top)
    for j in range(scores.size):
        scores[j] = math.exp(scores[j] - top)
        total += scores[j]
    for j in range(scores.size):
        scores[j] /= total


@njit
def from_both_ends(item: int, count: int) -> int:
    """Deal 0, count-1, 1, count-2, …: threads take contiguous items, later queries cost more."""
    return item // 2 if item % 2 == 0 else count - 1 - item // 2
