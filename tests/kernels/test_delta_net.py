"""Guards against a delta net whose state depends on how a prompt was cut into chunks."""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host import delta_net
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.delta_net_chunked import delta_chunk
from stratadesk.kernels.host.delta_state import HostDeltaState
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.host.workspace import HeapWorkspace

Floats = npt.NDArray[np.float32]
EPS = 1e-6


@pytest.fixture(scope="module")
def ops() -> HostOps:
    warm_up({"F32"}, "F32", lambda done, total: None)
    return HostOps()


def unit(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    scaled: npt.NDArray[np.float64] = x / np.sqrt((x * x).sum(axis=1, keepdims=True) + EPS)
    return scaled


class Problem:
    """Random inputs: T tokens, 2 key heads, 4 value heads, state size 16."""

    def __init__(self, tokens: int = 50) -> None:
        rng = np.random.default_rng(5)
        self.size, self.key_heads, self.value_heads = 16, 2, 4
        width = (2 * self.key_heads + self.value_heads) * self.size
        self.convolved = rng.standard_normal((tokens, width), np.float32)
        self.beta = rng.uniform(0.1, 0.9, (tokens, self.value_heads)).astype(np.float32)
        self.decay = rng.uniform(0.6, 1.0, (tokens, self.value_heads)).astype(np.float32)
        self.key_head_of = np.arange(self.value_heads, dtype=np.int32) % self.key_heads

    def run(self, ops: HostOps, chunk: int) -> tuple[Floats, Floats]:
        state = ops.delta_state(4, self.convolved.shape[1], self.value_heads, self.size)
        outputs = []
        for i in range(0, len(self.convolved), chunk):
            cut = slice(i, i + chunk)
            gates = (self.beta[cut], self.decay[cut])
            step = (self.convolved[cut], *gates, self.key_head_of, EPS, state)
            outputs.append(ops.delta_rule(*step))
            state.commit()
        return np.concatenate(outputs), state.memory

    def head(self, j: int) -> tuple[npt.NDArray[np.float64], ...]:
        """q, k (scaled) and v of value head j in float64."""
        wide = self.convolved.astype(np.float64)
        keys = self.key_heads * self.size
        first = int(self.key_head_of[j]) * self.size
        q = unit(wide[:, first : first + self.size]) / np.sqrt(self.size)
        k = unit(wide[:, keys + first : keys + first + self.size])
        begin = 2 * keys + j * self.size
        return q, k, wide[:, begin : begin + self.size]


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_steps_equal_the_chunked_form(ops: HostOps, chunk: int) -> None:
    problem = Problem()
    outputs, memory = problem.run(ops, 50)
    for j in range(problem.value_heads):
        q, k, v = problem.head(j)
        state = np.zeros((problem.size, problem.size))
        parts = []
        for i in range(0, len(q), chunk):
            cut = slice(i, i + chunk)
            beta, decay = problem.beta[cut, j], problem.decay[cut, j]
            part, state = delta_chunk(
                q[cut], k[cut], v[cut], beta.astype(float), decay.astype(float), state
            )
            parts.append(part)
        assert np.allclose(outputs[:, j], np.concatenate(parts), atol=1e-5)
        assert np.allclose(memory[j], state, atol=1e-5)


def test_any_chunks_give_the_same_bits(ops: HostOps) -> None:
    problem = Problem()
    whole, whole_memory = problem.run(ops, 50)
    for chunk in (1, 7, 49):
        outputs, memory = problem.run(ops, chunk)
        assert np.array_equal(outputs, whole)
        assert np.array_equal(memory, whole_memory)


def test_the_convolution_looks_back_over_chunks(ops: HostOps) -> None:
    rng = np.random.default_rng(6)
    u = rng.standard_normal((9, 5), np.float32)
    weight = rng.standard_normal((5, 4), np.float32)
    padded = np.concatenate((np.zeros((3, 5)), u))
    sums = sum(padded[j : j + 9] * weight[:, j] for j in range(4))
    wanted = sums / (1 + np.exp(-sums))
    for chunk in (1, 2, 9):
        state = HostDeltaState(HeapWorkspace(), 4, 5, 1, 1)
        parts = []
        for i in range(0, 9, chunk):
            parts.append(ops.causal_convolution(u[i : i + chunk], weight, state))
            state.commit()
        assert np.allclose(np.concatenate(parts), wanted, atol=1e-5)
        assert np.array_equal(state.history, u[-3:])


def test_softplus_is_linear_above_twenty() -> None:
    delta_net.delta_gates.compile()
    beta = np.zeros((1, 2), np.float32)
    alpha = np.array([[25.0, 0.0]], np.float32)
    delta_net.delta_gates(beta, alpha, np.zeros(2, np.float32), np.full(2, -0.1, np.float32))
    assert np.allclose(beta, 0.5)
    assert np.allclose(alpha, [[np.exp(-2.5), np.exp(-0.1 * np.log(2))]])


def test_an_uncommitted_chunk_leaves_no_trace(ops: HostOps) -> None:
    problem = Problem()
    state = ops.delta_state(4, problem.convolved.shape[1], problem.value_heads, problem.size)
    step = (problem.convolved, problem.beta, problem.decay, problem.key_head_of, EPS, state)
    first = ops.delta_rule(*step)
    ops.causal_convolution(
        problem.convolved, np.ones((problem.convolved.shape[1], 4), np.float32), state
    )
    assert not state.memory.any()
    assert not state.history.any()
    assert np.array_equal(ops.delta_rule(*step), first)
