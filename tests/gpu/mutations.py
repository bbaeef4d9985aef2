"""Small changes of the kernels, each with the check that must notice it.

A check that passes on a kernel that computes something else guards nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stratadesk.engine.commands import SamplingSettings
from stratadesk.kernels.cuda.programs import Program
from stratadesk.kernels.router_spec import RouterScore
from tests.conftest import DATA_DIR, golden_folder
from tests.gpu import test_delta as delta
from tests.gpu import test_joined as joined
from tests.gpu import test_ops as ops
from tests.gpu import test_rows as rows
from tests.gpu import test_sampling as sampling
from tests.gpu.bench import Bench

DRAWN = SamplingSettings(temperature=1.0, top_k=20, top_p=0.8, min_p=0.0)


@dataclass(frozen=True)
class Mutation:
    """`before` in a source file becomes `after`; `check` must fail with an AssertionError then."""

    file: str
    before: str
    after: str
    check: Callable[[Bench], None]

    @property
    def name(self) -> str:
        """What it changes."""
        return f"{self.file}: {self.before.strip()[:40]}"

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have programs of the file compiled with the change from now on."""
        whole = Program.text

        def text(program: Program) -> str:
            source = whole(program)
            if program.file != self.file and not self.file.endswith(".cuh"):
                return source
            if self.before not in source:
                # No AssertionError: that would count as noticed.
                raise LookupError(f"{self.before!r} is not in {self.file} any more")
            return source.replace(self.before, self.after, 1)

        monkeypatch.setattr(Program, "text", text)


def _products(bench: Bench) -> None:
    rows.test_products_are_those_of_the_values("Q4_K", 1, golden_folder() or DATA_DIR, bench)


def _gated_sum(bench: Bench) -> None:
    joined.test_a_product_that_is_summed_where_it_is_made(bench, 1)


def _norm(bench: Bench) -> None:
    ops.test_rms_norms(bench, 33, "")


def _wide_norm(bench: Bench) -> None:
    ops.test_rms_norms(bench, 384, "")


def _rotation(bench: Bench) -> None:
    ops.test_rotations_at_far_positions(bench, 262_000)


def _gates(bench: Bench) -> None:
    joined.test_gates_are_made_where_the_delta_rule_reads_them(bench)


def _attention(bench: Bench) -> None:
    ops.test_attention(bench, 64, 8, 2, 150, 2, 128, "F32")


def _delta_rule(bench: Bench) -> None:
    ops.test_the_delta_rule_over_several_steps(bench, 64, 2, 4)


def _convolution(bench: Bench) -> None:
    ops.test_the_convolution_over_several_steps(bench)


def _delta_net(bench: Bench) -> None:
    delta.test_a_delta_net_is_one_kernel(bench, delta.SHAPES[2])


def _sigmoid_net(bench: Bench) -> None:
    delta.test_a_delta_net_is_one_kernel(bench, delta.SHAPES[1])


def _long_convolution(bench: Bench) -> None:
    delta.test_a_delta_net_is_one_kernel(bench, delta.SHAPES[3])


def _fixed_norm(bench: Bench) -> None:
    delta.test_a_product_reads_the_norm_in_fixed_point(bench)


def _uncommitted(bench: Bench) -> None:
    delta.test_a_step_that_is_not_committed_has_changed_nothing(bench)


def _softmax_router(bench: Bench) -> None:
    ops.test_routing(bench, RouterScore.SOFTMAX, 16, 4, biased=False)


def _wide_router(bench: Bench) -> None:
    ops.test_routing(bench, RouterScore.SIGMOID, 256, 8, biased=False)


def _late_softmax(bench: Bench) -> None:
    ops.test_routing(bench, RouterScore.SELECTED, 16, 4, biased=False)


def _draws(bench: Bench) -> None:
    sampling.test_draws_are_the_hosts(bench, DRAWN, 77)


# One term is left out, a sign or an order is turned, a scale is another by a little.
MUTATIONS = (
    Mutation("weights.cu", "fmaf(scale[r][g], dot,", "fmaf(scale[r][g] * 1.0001f, dot,", _products),
    Mutation("weights.cu", "sigmoid(TOKENS == 1 ?", "-sigmoid(TOKENS == 1 ?", _gated_sum),
    Mutation("vectors.cu", "/ float(width) + eps", "/ float(width + 1) + eps", _norm),
    Mutation("vectors.cu", "values[k].w, values[k].w", "values[k].w, values[k].z", _wide_norm),
    Mutation("fixed.cuh", "planes[1] |= u32(u8(upper", "planes[1] |= u32(u8(-upper", _gated_sum),
    Mutation("vectors.cu", "double(*start + t) *", "float(*start + t) * (float)", _rotation),
    Mutation("attention.cu", "expf(largest[k] - top)", "expf(top - largest[k])", _attention),
    Mutation("delta_net.cu", "logf(1.0f + expf(x))", "expf(x)", _gates),
    Mutation("delta_net.cu", "sqrtf(q_squares + eps)", "sqrtf(k_squares + eps)", _delta_rule),
    Mutation("delta_net.cu", "j < taps) total", "j + 1 < taps) total", _convolution),
    Mutation("delta_net.cu", "fmaf(weight[j], rows", "fmaf(weight[0], rows", _long_convolution),
    Mutation("delta_net.cu", "each, each, squares", "each, value, squares", _delta_net),
    Mutation("delta_net.cu", "by_sigmoid ? sigmoid(z)", "by_sigmoid ? silu(z)", _sigmoid_net),
    Mutation("delta_net.cu", "rows.at[tokens + j]", "rows.at[tokens - 1 + j]", _delta_net),
    Mutation("delta_net.cu", "quarter == 2 || named >= 0 ?", "quarter == 2 ?", _delta_net),
    Mutation("delta_net.cu", "named < 0 ? ~named", "named < 0 ? 0", _sigmoid_net),
    Mutation("delta_net.cu", "fmaf(steps.key_query[at], delta,", "fmaf(0.999f, delta,", _delta_net),
    Mutation("delta_net.cu", "t * fixed_row_bytes(columns), at", "0, at", _fixed_norm),
    Mutation("delta_net.cu", "(net, 1 - *net.side)", "(net, *net.side)", _uncommitted),
    Mutation("router.cu", "own, k < lane / 4", "own, k > lane / 4", _softmax_router),
    Mutation("router.cu", "own, other < warp", "own, other > warp", _wide_router),
    Mutation("router.cu", "&& other < lane", "&& other > lane", _softmax_router),
    Mutation("router.cu", "sum += __shfl", "sum = __shfl", _late_softmax),
    Mutation("sampling.cu", "sum < wishes->top_p * total", "sum < total", _draws),
)
