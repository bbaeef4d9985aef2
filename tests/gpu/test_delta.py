"""Guards against a delta net in one kernel that computes something else than its operations.

Against float64 over several steps, on poisoned memory, at sizes of the 35B shape and at odd ones.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda.states import CudaDeltaState
from stratadesk.kernels.cuda.tensors import DeviceTensor
from tests.gpu.bench import Bench
from tests.gpu.test_joined import EPS, Doubles, Floats, close, quantized, random, sigmoid, silu

NORM_EPS = 1e-5
WINDOWS = (1, 5, 8, 1, 3)


@dataclass(frozen=True)
class Shape:
    """Sizes of a delta net; value heads that share a key head stand side by side if `grouped`."""

    size: int
    key_heads: int
    value_heads: int
    taps: int = 4
    grouped: bool = False
    by_sigmoid: bool = False

    @property
    def channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.size

    @property
    def key_head_of(self) -> npt.NDArray[np.int32]:
        heads = np.arange(self.value_heads, dtype=np.int32)
        if self.grouped:
            return heads // np.int32(self.value_heads // self.key_heads)
        return heads % np.int32(self.key_heads)


SHAPES = (
    Shape(128, 16, 32),
    Shape(128, 2, 6, grouped=True, by_sigmoid=True),
    Shape(64, 3, 3, taps=2),
    Shape(32, 1, 5, taps=8, by_sigmoid=True),
    Shape(32, 2, 2, taps=1),
)


class Net:
    """A delta net with random weights, and random inputs of sum(WINDOWS) tokens."""

    def __init__(self, bench: Bench, shape: Shape) -> None:
        rng = np.random.default_rng(shape.size + shape.value_heads)
        self.bench, self.shape = bench, shape
        tokens, heads = sum(WINDOWS), shape.value_heads
        self.u = random(rng, tokens, shape.channels)
        self.beta, self.alpha = random(rng, tokens, heads), random(rng, tokens, heads)
        self.gate = random(rng, tokens, heads * shape.size)
        self.weight = random(rng, shape.channels, shape.taps)
        self.dt, self.a = 3 * random(rng, heads), -np.abs(random(rng, heads)) / 4
        self.dt[0] = 25.0  # where softplus(x) is x
        self.norm = random(rng, shape.size)
        self.kept = [bench.tensor(x) for x in (self.weight, self.dt, self.a, self.norm)]
        self.state: CudaDeltaState = bench.ops.delta_state(
            shape.taps, shape.channels, heads, shape.size
        )

    def window(self, first: int, end: int, apart: frozenset[str] = frozenset()) -> DeviceTensor:
        """The gated norm of some tokens; what is named in `apart` is launched at once."""
        ops, shape, cut = self.bench.ops, self.shape, slice(first, end)
        weight, dt, a, norm = self.kept
        u, beta, alpha, gate = (
            self.bench.tensor(x[cut]) for x in (self.u, self.beta, self.alpha, self.gate)
        )
        convolved = ops.causal_convolution(u, weight, self.state)
        if "convolution" in apart:
            ops.flush()
        ops.delta_gates(beta, alpha, dt, a)
        if "gates" in apart:
            ops.flush()
        o = ops.delta_rule(convolved, beta, alpha, shape.key_head_of, EPS, self.state)
        if "rule" in apart:
            ops.flush()
        z = gate.reshape(*o.shape)
        gated = ops.rms_norm_sigmoid_gate if shape.by_sigmoid else ops.rms_norm_silu_gate
        return gated(o, z, norm, NORM_EPS)

    def run(self, windows: tuple[int, ...], apart: frozenset[str] = frozenset()) -> Floats:
        """The gated norms of all tokens, read in `windows` from a state of zeros."""
        ops, found, first = self.bench.ops, [], 0
        ops.clear(self.state.histories)
        ops.clear(self.state.memories)
        for step, tokens in enumerate(windows):
            self.bench.stand(0, step % 2)
            with ops.scope():
                found.append(ops.download(self.window(first, first + tokens, apart)))
            first += tokens
        return np.concatenate(found)

    def histories(self) -> Floats:
        return self.bench.ops.download(self.state.histories)

    def wanted(self) -> Doubles:
        shape, past = self.shape, self.shape.taps - 1
        size, heads = shape.size, shape.value_heads
        rows = np.concatenate([np.zeros((past, shape.channels)), self.u.astype(np.float64)])
        count = len(self.u)
        sums = sum(rows[j : j + count] * self.weight[:, j] for j in range(shape.taps))
        parts = silu(sums).reshape(count, -1, size)
        q, k, v = np.split(parts, [shape.key_heads, 2 * shape.key_heads], axis=1)
        q = q / np.sqrt((q**2).sum(axis=2, keepdims=True) + EPS) / np.sqrt(size)
        k = k / np.sqrt((k**2).sum(axis=2, keepdims=True) + EPS)
        decay = np.exp(np.logaddexp(0, self.alpha.astype(np.float64) + self.dt) * self.a)
        memory, out = np.zeros((heads, size, size)), np.empty((count, heads, size))
        for t in range(count):
            for j, key_head in enumerate(shape.key_head_of):
                key = k[t, key_head]
                memory[j] *= decay[t, j]
                delta = sigmoid(self.beta[t, j]) * (v[t, j] - memory[j].T @ key)
                memory[j] += np.outer(key, delta)
                out[t, j] = memory[j].T @ q[t, key_head]
        z = self.gate.astype(np.float64).reshape(out.shape)
        scale = sigmoid(self.gate).reshape(out.shape) if shape.by_sigmoid else silu(z)
        return out / np.sqrt((out**2).mean(axis=2, keepdims=True) + NORM_EPS) * self.norm * scale


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_delta_net_is_one_kernel(bench: Bench, shape: Shape) -> None:
    net = Net(bench, shape)
    before = bench.ops.launches
    result = net.run(WINDOWS)
    assert bench.ops.launches == before + len(WINDOWS)
    close(result, net.wanted())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows_do_not_change_a_bit(bench: Bench, shape: Shape) -> None:
    net = Net(bench, shape)
    wanted, history = net.run(WINDOWS), net.histories()
    alone = net.run((1,) * len(net.u))
    assert np.array_equal(alone, wanted)
    side = len(WINDOWS) % 2
    assert np.array_equal(net.histories()[len(net.u) % 2], history[side])
    assert np.array_equal(history[side], net.u[len(net.u) - (shape.taps - 1) :])
    assert np.array_equal(net.run((8, 1, 2, 7)), wanted)


@pytest.mark.parametrize(
    "apart", [("convolution",), ("gates",), ("rule",), ("convolution", "gates", "rule")]
)
def test_what_is_launched_before_it_is_joined_is_the_same(
    bench: Bench, apart: tuple[str, ...]
) -> None:
    net = Net(bench, SHAPES[1])
    together, history = net.run(WINDOWS), net.histories()
    close(net.run(WINDOWS, frozenset(apart)), together.astype(np.float64))
    assert np.array_equal(net.histories(), history)


def test_a_product_reads_the_norm_in_fixed_point(bench: Bench) -> None:
    net, rng = Net(bench, SHAPES[0]), np.random.default_rng(1)
    weight, values = quantized(bench, rng, 40, 32 * 128)
    before = bench.ops.launches
    gated = net.window(0, 3).reshape(3, -1)
    result = bench.ops.download(bench.ops.linear(weight, gated))
    assert bench.ops.launches == before + 2
    plain = DeviceTensor(gated.address, gated.shape)
    assert np.array_equal(result, bench.ops.download(bench.ops.linear(weight, plain)))
    close(result, bench.ops.download(plain).astype(np.float64) @ values.T)


def test_a_step_that_is_not_committed_has_changed_nothing(bench: Bench) -> None:
    net = Net(bench, SHAPES[2])
    net.run((5,))
    bench.stand(0, 1)
    tries = [bench.ops.download(net.window(5, end)) for end in (13, 6, 13)]
    assert np.array_equal(tries[0], tries[2])
    assert np.array_equal(tries[0][:1], tries[1])


def test_what_does_not_belong_to_it_is_not_joined(bench: Bench) -> None:
    together, apart = (_with_strangers(bench, apart=apart) for apart in (False, True))
    for joined, alone in zip(together, apart, strict=True):
        assert np.array_equal(joined, alone)


def _with_strangers(bench: Bench, *, apart: bool) -> list[Floats]:
    """Key heads without a value head, gates of another net, norms of another tensor, by itself."""
    rng = np.random.default_rng(9)
    size, key_heads, value_heads = 32, 3, 2
    channels = (2 * key_heads + value_heads) * size
    u, weight = (bench.tensor(random(rng, n, m)) for n, m in ((2, channels), (channels, 4)))
    gates, others = ([bench.tensor(random(rng, 2, value_heads)) for _ in range(2)] for _ in "ab")
    dt, a, norm = (bench.tensor(-np.abs(random(rng, n))) for n in (value_heads, value_heads, size))
    y, heads = bench.tensor(random(rng, 2, value_heads, size)), np.array([2, 0], np.int32)
    bench.stand(0)
    state = bench.ops.delta_state(4, channels, value_heads, size)

    def settle() -> None:
        if apart:
            bench.ops.flush()

    convolved = bench.ops.causal_convolution(u, weight, state)
    bench.ops.delta_gates(*others, dt, a)
    settle()
    o = bench.ops.delta_rule(convolved, *gates, heads, EPS, state)
    settle()
    normed = bench.ops.rms_norm_silu_gate(y, y, norm, EPS)
    again = bench.ops.delta_rule(convolved, *gates, heads, EPS, state)
    settle()
    own = bench.ops.rms_norm_silu_gate(again, again, norm, EPS)
    found = (convolved, *others, o, normed, again, own, state.histories)
    results = [bench.ops.download(tensor) for tensor in found]
    assert np.isfinite(np.concatenate([x.reshape(-1) for x in results[:-1]])).all()
    assert np.array_equal(results[-1][1, 1:], bench.ops.download(u))
    return results


def test_sizes_that_the_kernels_have_no_room_for_are_refused(bench: Bench) -> None:
    for taps, size in ((9, 32), (4, 96)):
        with pytest.raises(UnsupportedModelError, match=f"size {size} that convolve {taps} tokens"):
            bench.ops.delta_state(taps, 4 * size, 2, size)
    net = Net(bench, SHAPES[2])
    with pytest.raises(ValueError, match="9 tokens, 8 at most"):
        net.window(0, 9)
