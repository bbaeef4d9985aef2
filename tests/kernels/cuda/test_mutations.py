"""Guards against checks of kernels that pass whatever a kernel computes."""

from collections.abc import Iterator

import pytest

from stratadesk.kernels.router_spec import RouterScore
from tests.gpu import test_delta as delta
from tests.gpu import test_ops as ops
from tests.gpu.mutations import MUTATIONS, Mutation
from tests.kernels.cuda.emulation.bench import EmulatedBench
from tests.kernels.cuda.emulation.kernels import COMPILER, library

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def own_libraries() -> Iterator[None]:
    """No library of a changed program outlives its test, and none from before is taken for it."""
    library.cache_clear()
    yield
    library.cache_clear()


MISSING_BARRIERS = (
    Mutation(
        "attention.cu",
        "    __syncthreads();\n    float top = tops[0][head];",
        "    float top = tops[0][head];",
        lambda bench: ops.test_attention(bench, 64, 8, 2, 150, 2, 128, "F32"),
    ),
    Mutation(
        "router.cu",
        "[warp * WARP + better] = own;\n    __syncthreads();",
        "[warp * WARP + better] = own;",
        lambda bench: ops.test_routing(bench, RouterScore.SOFTMAX, 256, 8, biased=False),
    ),
    Mutation(
        "bits.cuh",
        "if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;\n    __syncthreads();",
        "if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;",
        lambda bench: ops.test_rms_norms(bench, 2_048, ""),
    ),
    *(
        Mutation(
            "delta_net.cu",
            f"__syncthreads();\n    {following}<",
            f"{following}<",
            lambda bench: delta.test_a_delta_net_is_one_kernel(bench, delta.SHAPES[1]),
        )
        for following in ("normalise", "apply_rule", "write_outputs")
    ),
)
"""A card may hide these for a long time; the emulator's order of turns does not."""


@pytest.mark.parametrize(
    "mutation", [*MUTATIONS, *MISSING_BARRIERS], ids=lambda mutation: mutation.name
)
def test_a_changed_kernel_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.check(EmulatedBench())
    library.cache_clear()
    mutation.install(monkeypatch)
    with pytest.raises(AssertionError):
        mutation.check(EmulatedBench())
