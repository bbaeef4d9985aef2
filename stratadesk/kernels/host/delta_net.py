"""The gated delta net: causal convolution, gates, and the recurrence token by token.

The step form serves prompts too, so that a prompt read in any chunks gives the same bits.
Formula: ARCHITECTURE notes of qwen35moe; the chunked form in `delta_net_chunked` is its tested
counterpart for kernels that need it.
"""

import math

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.elementwise import EXP_STEPS, sigmoid, silu, sum_of_squares
from stratadesk.kernels.host.kernel import SUM_MATH, kernel


@kernel(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1])",
    work=lambda history, u, weight, out: u.size * EXP_STEPS,
)
def causal_convolution(
    history: np.ndarray, u: np.ndarray, weight: np.ndarray, out: np.ndarray
) -> None:
    """out[t] = silu(Σ_j weight[:, j] · u[t - (C-1) + j]), depthwise.

    u and out are [T, channels], weight [channels, C]; `history` [C-1, channels] holds the rows
    of u before its first one, oldest first.
    """
    width = weight.shape[1]
    past = width - 1
    for t in prange(u.shape[0]):
        for c in range(u.shape[1]):
            total = np.float32(0)
            for j in range(width):
                row = t + j - past
                value = u[row, c] if row >= 0 else history[past + row, c]
                total += weight[c, j] * value
            out[t, c] = silu(total)


@kernel("void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1])", parallel=False)
def delta_gates(beta: np.ndarray, alpha: np.ndarray, dt: np.ndarray, a: np.ndarray) -> None:
    """Turn projections [T, n_v] into beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a).

    softplus(x) = log(1 + e^x), x itself above 20. In place.
    """
    for t in range(beta.shape[0]):
        for j in range(beta.shape[1]):
            beta[t, j] = sigmoid(beta[t, j])
            x = alpha[t, j] + dt[j]
            softplus = x if x > np.float32(20) else math.log(np.float32(1) + math.exp(x))
            alpha[t, j] = math.exp(softplus * a[j])


@kernel(
    "void(float32[:, ::1], float32[:, ::1], float32[::1], float32, float32[:, ::1])", parallel=False
)
def rms_norm_sigmoid_gate(
    x: np.ndarray, gate: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray
) -> None:
    """out[r] = rms_norm(x[r]) · sigmoid(gate[r]) for every row."""
    width = np.float32(x.shape[1])
    for r in range(x.shape[0]):
        factor = np.float32(1) / np.sqrt(sum_of_squares(x[r]) / width + eps)
        for i in range(x.shape[1]):
            out[r, i] = x[r, i] * factor * weight[i] * sigmoid(gate[r, i])


@njit(fastmath=SUM_MATH)
def _decay_and_read(state: np.ndarray, k: np.ndarray, decay: float, read: np.ndarray) -> None:
    """State ·= decay; read = stateᵀ k."""
    read[:] = 0
    for i in range(k.size):
        row, key = state[i], k[i]
        for v in range(read.size):
            row[v] *= decay
            read[v] += row[v] * key


@njit(fastmath=SUM_MATH)
def _write_and_read(
    state: np.ndarray, k: np.ndarray, q: np.ndarray, delta: np.ndarray, out: np.ndarray
) -> None:
    """State += k deltaᵀ; out = stateᵀ q."""
    out[:] = 0
    for i in range(k.size):
        row, key, query = state[i], k[i], q[i]
        for v in range(out.size):
            row[v] += key * delta[v]
            out[v] += row[v] * query


@njit
def _unit(x: np.ndarray, eps: float, scale: float, out: np.ndarray) -> None:
    """Out = x / sqrt(Σx² + eps) · scale."""
    factor = scale / np.sqrt(sum_of_squares(x) + eps)
    for i in range(x.size):
        out[i] = x[i] * factor


@kernel(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int32[::1], int64, float32,"
    " float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1])",
    work=lambda convolved, *rest: 2 * len(convolved) * rest[-2].size,
)
def delta_steps(
    convolved: np.ndarray,
    beta: np.ndarray,
    decay: np.ndarray,
    key_head_of: np.ndarray,
    key_heads: int,
    eps: float,
    before: np.ndarray,
    state: np.ndarray,
    out: np.ndarray,
) -> None:
    """Run the delta rule over all tokens; value heads in parallel, tokens in order.

    `convolved` [T, 2·n_k·S + n_v·S] holds q, k, v; `beta`, `decay` [T, n_v]; `key_head_of`
    [n_v]; the memory `before` the tokens and the `state` after them are [n_v, S(key), S(value)];
    out [T, n_v, S]. q and k are scaled to unit length, q also by 1/sqrt(S).
    """
    value_heads, size = state.shape[0], state.shape[1]
    key_width = key_heads * size
    q_scale = np.float32(1) / np.sqrt(np.float32(size))
    for j in prange(value_heads):
        q, k = np.empty(size, np.float32), np.empty(size, np.float32)
        delta = np.empty(size, np.float32)
        q_first = key_head_of[j] * size
        v_first = 2 * key_width + j * size
        state[j] = before[j]
        for t in range(convolved.shape[0]):
            row = convolved[t]
            _unit(row[q_first : q_first + size], eps, q_scale, q)
            _unit(row[key_width + q_first : key_width + q_first + size], eps, np.float32(1), k)
            _decay_and_read(state[j], k, decay[t, j], delta)
            for v in range(size):
                delta[v] = beta[t, j] * (row[v_first + v] - delta[v])
            _write_and_read(state[j], k, q, delta, out[t, j])
