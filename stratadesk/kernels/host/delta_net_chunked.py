"""The chunked form of the gated delta rule in NumPy: the reference for kernels that use it.

The host computes the step form (`delta_net`); this one exists to check the algebra that a GPU's
prompt path needs, where C tokens become a few small matrix products.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def delta_chunk(
    q: Array, k: Array, v: Array, beta: Array, decay: Array, memory: Array
) -> tuple[Array, Array]:
    """One chunk of one value head: returns (outputs [C, S], memory after the chunk [S, S]).

    q, k, v are [C, S] with q and k already scaled, beta and decay [C], memory M_0 [S, S] by key
    and value. With Γ_t = Π_{i ≤ t} decay_i the step form unrolls to

        δ_t = β_t (v_t − Γ_t M_0ᵀ k_t − Σ_{i<t} Γ_t/Γ_i (k_i·k_t) δ_i)
        o_t = Γ_t M_0ᵀ q_t + Σ_{i≤t} Γ_t/Γ_i (k_i·q_t) δ_i
        M_C = Γ_C M_0 + Σ_i Γ_C/Γ_i k_i δ_iᵀ

    so all δ follow from one unit lower triangular system. Ratios of Γ are taken as differences
    of logarithms, because Γ itself underflows in long chunks.
    """
    log_decay = np.cumsum(np.log(decay))
    ratios = np.exp(np.minimum(log_decay[:, None] - log_decay[None, :], 0.0))
    total = np.exp(log_decay)[:, None]
    coupling = np.tril(beta[:, None] * ratios * (k @ k.T), -1)
    wanted = beta[:, None] * (v - total * (k @ memory))
    delta = np.linalg.solve(np.eye(len(q)) + coupling, wanted)
    outputs = total * (q @ memory) + np.tril(ratios * (q @ k.T)) @ delta
    carried = np.exp(log_decay[-1] - log_decay)[:, None] * k
    return outputs, total[-1] * memory + carried.T @ delta
