"""Which experts a token goes to, and the order in which experts are computed."""

import math

import numpy as np
from numba import njit

from stratadesk.kernels.host.kernel import kernel

# The sum that selected weights are divided by is never taken below this (2**-14, as llama.cpp).
SMALLEST_WEIGHT_SUM = np.float32(6.103515625e-5)


@njit
def _softmax(logits: np.ndarray, out: np.ndarray) -> None:
    """Softmax of one row, float32."""
    top = logits[0]
    for i in range(1, logits.size):
        top = max(top, logits[i])
    total = np.float32(0)
    for i in range(logits.size):
        out[i] = math.exp(logits[i] - top)
        total += out[i]
    for i in range(logits.size):
        out[i] /= total


@kernel("void(float32[:, ::1], boolean, int32[:, ::1], float32[:, ::1])", parallel=False)
def route_softmax(
    logits: np.ndarray, renormalise: bool, experts: np.ndarray, weights: np.ndarray
) -> None:
    """Select the K largest softmax values of each row of logits [T, N], best first.

    `experts` [T, K] gets their indices (the lower one of equals first), `weights` [T, K] their
    softmax values, divided by their sum when `renormalise`.
    """
    used = experts.shape[1]
    for t in range(logits.shape[0]):
        scores = np.empty(logits.shape[1], np.float32)
        _softmax(logits[t], scores)
        total = np.float32(0)
        for k in range(used):
            best = 0
            for n in range(1, scores.size):
                if scores[n] > scores[best]:
                    best = n
            experts[t, k] = best
            weights[t, k] = scores[best]
            total += scores[best]
            scores[best] = np.float32(-1)
        if renormalise:
            for k in range(used):
                weights[t, k] /= max(total, SMALLEST_WEIGHT_SUM)


@kernel("void(int32[::1], int32[::1], int32[::1])", parallel=False)
def sort_by_expert(experts: np.ndarray, starts: np.ndarray, order: np.ndarray) -> None:
    """Counting sort of the routed entries: expert e owns order[starts[e] : starts[e + 1]].

    `experts` [T·K] is the routing flattened, `starts` [N + 1], `order` [T·K] entry indices,
    rising within an expert.
    """
    starts[:] = 0
    for i in range(experts.size):
        starts[experts[i] + 1] += 1
    for e in range(1, starts.size):
        starts[e] += starts[e - 1]
    cursor = starts[:-1].copy()
    for i in range(experts.size):
        order[cursor[experts[i]]] = i
        cursor[experts[i]] += 1
