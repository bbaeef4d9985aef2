"""Guards against sums that depend on the batch, and against weights expanded to floats."""

import subprocess
import sys
from types import FunctionType

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host import matmul as template
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.host.weights import HostWeight
from stratadesk.kernels.router_spec import RouterSpec

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def ops() -> HostOps:
    warm_up({"F32", "Q8_0"}, "F32", lambda done, total: None)
    return HostOps()


def float_weight(ops: HostOps, values: Floats) -> HostWeight:
    return ops.weight(values.reshape(-1).view(np.uint8), "F32", values.shape)


def test_linear_is_the_matrix_product_over_odd_shapes(ops: HostOps) -> None:
    rng = np.random.default_rng(1)
    for tokens, rows, columns in ((1, 1, 1), (3, 5, 7), (2, 130, 1025), (9, 4, 3000)):
        w = rng.standard_normal((rows, columns), np.float32)
        x = rng.standard_normal((tokens, columns), np.float32)
        got = ops.linear(float_weight(ops, w), x)
        assert np.allclose(got, x.astype(np.float64) @ w.T.astype(np.float64), atol=1e-3)


def test_a_row_of_a_batch_has_the_bits_it_has_alone(ops: HostOps) -> None:
    rng = np.random.default_rng(2)
    weight = float_weight(ops, rng.standard_normal((33, 2500), np.float32))
    x = rng.standard_normal((70, 2500), np.float32)
    whole = ops.linear(weight, x)
    for t in (0, 1, 35, 69):
        assert np.array_equal(ops.linear(weight, x[t : t + 1])[0], whole[t])


def test_each_expert_sees_its_tokens_and_sums_in_router_order(ops: HostOps) -> None:
    rng = np.random.default_rng(3)
    experts, width, inner, tokens, used = 6, 24, 20, 11, 3
    gate = rng.standard_normal((experts, inner, width), np.float32)
    up = rng.standard_normal((experts, inner, width), np.float32)
    down = rng.standard_normal((experts, width, inner), np.float32)
    x = rng.standard_normal((tokens, width), np.float32)
    spec = RouterSpec(used, renormalise=True)
    chosen = ops.route(rng.standard_normal((tokens, experts), np.float32), spec)
    weights = [float_weight(ops, part) for part in (gate, up, down)]

    got = ops.experts(ops.expert_layer(0, weights), x, chosen)

    for t in range(tokens):
        wanted = np.zeros(width)
        for expert, share in zip(chosen.experts[t], chosen.weights[t], strict=True):
            g = gate[expert].astype(np.float64) @ x[t]
            wanted += share * (down[expert] @ (g / (1 + np.exp(-g)) * (up[expert] @ x[t])))
        assert np.allclose(got[t], wanted, atol=1e-3)
    assert np.allclose(chosen.weights.sum(axis=1), 1)


def test_each_weight_block_is_decoded_once_per_chunk() -> None:
    starts_seen: list[int] = []

    def counting(data: Floats, start: int, count: int, out: Floats) -> None:
        starts_seen.append(start)
        out[:count] = data[start : start + count]

    scope = {**vars(template), "decode": counting, "pointer_to": int, "carray": lambda *_: w}
    interpreted = FunctionType(template.matmul.__code__, scope)
    rows, columns, tokens = 8, 2048, 5
    w = np.random.default_rng(4).standard_normal(rows * columns).astype(np.float32)
    x = np.ones((tokens, columns), np.float32)
    y = np.zeros((tokens, rows), np.float32)
    order, one = np.arange(tokens, dtype=np.int32), np.zeros(1, np.int64)
    bounds = np.array([0, tokens], np.int32)

    interpreted(one, columns, 1024, rows, x, 1, order, bounds, y, 0)

    assert len(starts_seen) == len(set(starts_seen)) == rows * columns // 1024
    assert np.allclose(y, w.reshape(rows, columns).sum(axis=1), atol=1e-2)


MEMORY_SCRIPT = """
import resource
import numpy as np
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.warm_up import warm_up

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

warm_up({"Q8_0"}, "F32", lambda done, total: None)
ops = HostOps()
rows, columns, tokens = 8192, 8192, 32
data = np.zeros(rows * columns // 32 * 34, np.uint8)
data[:] = 1
x = np.ones((tokens, columns), np.float32)
weight = ops.weight(data, "Q8_0", (rows, columns))
before = peak_mib()
ops.linear(weight, x)
print(peak_mib() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="peak RSS is read from getrusage")
def test_a_matrix_product_expands_no_more_than_tiles() -> None:
    """As floats the weight would be 256 MiB; the result is 1 MiB and a tile 16 KiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 8


def test_a_kernel_refuses_other_types_than_declared(ops: HostOps) -> None:
    with pytest.raises(TypeError):
        FORMATS["F32"].matmul(np.zeros(3), 1, 1)
