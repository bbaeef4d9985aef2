"""Which experts a token goes to, and the order in which experts are computed."""

import math

import numpy as np
from numba import njit

from stratadesk.kernels.host.elementwise import sigmoid
from stratadesk.kernels.host.kernel import kernel

SOFTMAX, SIGMOID, SELECTED = 0, 1, 2
"""Numbers of the scores of `kernels.router_spec` in the order declared there."""

# The sum that selected weights are divided by is never taken below this (2**-14, as llama.cpp).
SMALLEST_WEIGHT_SUM = np.float32(6.103515625e-5)


@njit
def _softmax(logits: np.ndarray, out: np.ndarray) -> None:
    """Softmax of one row, float32; out may be the logits."""
    top = logits[0]
    for i in range(1, logits.size):
        top = max(top, logits[i])
    total = np.float32(0)
    for i in range(logits.size):
        out[i] = math.exp(logits[i] - top)
        total += out[i]
    for i in range(logits.size):
        out[i] /= total


@njit
def _scores(logits: np.ndarray, score: int, out: np.ndarray) -> None:
    if score == SOFTMAX:
        _softmax(logits, out)
        return
    for i in range(logits.size):
        out[i] = sigmoid(logits[i]) if score == SIGMOID else logits[i]


@njit
def _select(ranks: np.ndarray, chosen: np.ndarray) -> None:
    """Indices of the largest ranks, best first, the lower one of equals first; spoils ranks."""
    for k in range(chosen.size):
        best = 0
        for n in range(1, ranks.size):
            if ranks[n] > ranks[best]:
                best = n
        chosen[k] = best
        ranks[best] = -np.inf


@njit
def _divide_by_sum(weights: np.ndarray) -> None:
    total = np.float32(0)
    for k in range(weights.size):
        total += weights[k]
    for k in range(weights.size):
        weights[k] /= max(total, SMALLEST_WEIGHT_SUM)


@kernel(
    "void(float32[:, ::1], int64, float32[::1], boolean, float32, int32[:, ::1], float32[:, ::1])",
    parallel=False,
)
def route(
    logits: np.ndarray,
    score: int,
    bias: np.ndarray,
    renormalise: bool,
    scale: float,
    experts: np.ndarray,
    weights: np.ndarray,
) -> None:
    """Choose K experts for each row of logits [T, N], best first; see `router_spec.RouterSpec`.

    `bias` [N], or empty for none, counts for the choice only. `experts` and `weights` [T, K] get
    the indices and what the experts' outputs are multiplied by.
    """
    scores = np.empty(logits.shape[1], np.float32)
    ranks = np.empty(logits.shape[1], np.float32)
    for t in range(logits.shape[0]):
        _scores(logits[t], score, scores)
        for n in range(scores.size):
            ranks[n] = scores[n] + bias[n] if bias.size else scores[n]
        _select(ranks, experts[t])
        for k in range(weights.shape[1]):
            weights[t, k] = scores[experts[t, k]]
        if score == SELECTED:
            _softmax(weights[t], weights[t])
        if renormalise:
            _divide_by_sum(weights[t])
        for k in range(weights.shape[1]):
            weights[t, k] *= scale


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
