"""Guards against kernels that compute something else, where there is no card.

The tests of `tests/gpu` for single operations at small sizes, with the sources run on the CPU by an
emulator (`emulation/`).
"""

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from stratadesk.engine.commands import SamplingSettings
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.tensors import DeviceWeight
from stratadesk.kernels.router_spec import RouterScore, RouterSpec
from tests.gpu import test_delta as delta
from tests.gpu import test_joined as joined
from tests.gpu import test_ops as ops
from tests.gpu import test_rows as rows
from tests.gpu import test_sampling as sampling
from tests.gpu.bench import Bench
from tests.kernels.cuda.emulation.bench import EmulatedBench
from tests.kernels.cuda.emulation.kernels import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Threads take turns in another order in each test, the same one every time."""
    seed = 2 + zlib.crc32(request.node.name.encode()) % 1_000
    monkeypatch.setenv("STRATADESK_EMULATION_ORDER", str(seed))
    return EmulatedBench()


@pytest.mark.parametrize("name", programs.FORMATS)
def test_rows_and_products_of_every_format(name: str, golden_dir: Path, bench: Bench) -> None:
    rows.test_values_are_those_of_the_reference(name, golden_dir, bench)
    for tokens in (1, 5):
        rows.test_products_are_those_of_the_values(name, tokens, golden_dir, bench)


@pytest.mark.parametrize("name", programs.FORMATS)
def test_every_entry_of_a_codebook(name: str, bench: Bench) -> None:
    """Random bytes name all indices and signs, and scales that are no numbers too."""
    raw = np.random.default_rng(11).integers(
        0, 256, (256, DeviceWeight(name, 0, (1, 1_024)).row_bytes), np.uint8
    )
    with np.errstate(all="ignore"):
        wanted = dequantize(raw, GGMLQuantizationType[name])
    weight = bench.weight(raw.reshape(-1), name, wanted.shape)
    ids = bench.tensor(np.arange(len(wanted), dtype=np.int32))
    decoded = bench.ops.download(bench.ops.decode_rows(weight, ids))
    assert np.array_equal(decoded, wanted, equal_nan=True)


@pytest.mark.parametrize("tokens", [1, 2, 5, 8])
@pytest.mark.parametrize("columns", [3_104, 128, 96])
def test_products_of_one_input(bench: Bench, tokens: int, columns: int) -> None:
    joined.test_products_of_one_input_in_one_launch(bench, tokens, columns)


def test_sums_where_products_are_made(bench: Bench) -> None:
    joined.test_a_product_that_is_summed_where_it_is_made(bench, 1)


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize(("width", "inner"), [(96, 96), (64, 36)])
def test_feed_forwards(bench: Bench, tokens: int, width: int, inner: int) -> None:
    joined.test_feed_forwards(bench, tokens, width, inner)


@pytest.mark.parametrize("name", ["F16", "Q4_0", "Q8_0"])
def test_a_token_has_the_same_bits_alone_and_in_a_window(name: str, bench: Bench) -> None:
    rng, kind = np.random.default_rng(5), GGMLQuantizationType[name]

    def weight(*shape: int) -> DeviceWeight:
        raw = quantize(rng.standard_normal(shape, np.float32), kind)
        return bench.weight(raw.view(np.uint8).reshape(-1), name, shape)

    gate, up, down = weight(64, 1_312), weight(64, 1_312), weight(36, 64)
    parts = (weight(4, 64, 1_312), weight(4, 64, 1_312), weight(4, 36, 64))
    layer, spec = bench.ops.expert_layer(0, parts), RouterSpec(2, RouterScore.SOFTMAX)
    x, logits = rng.standard_normal((6, 1_312), np.float32), rng.standard_normal((6, 4), np.float32)

    def outcome(first: int, end: int) -> tuple[npt.NDArray[np.float32], ...]:
        place = bench.tensor(x[first:end])
        chosen = bench.ops.route(bench.tensor(logits[first:end]), spec)
        dense = bench.ops.download(bench.ops.feed_forward(gate, up, down, place))
        return dense, bench.ops.download(bench.ops.experts(layer, place, chosen))

    windows = outcome(0, 6)
    for token in range(6):
        for window, alone in zip(windows, outcome(token, token + 1), strict=True):
            assert np.array_equal(window[token], alone[0])


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(
    ("count", "used", "width", "inner"), [(5, 3, 96, 64), (16, 1, 64, 32), (24, 10, 64, 64)]
)
@pytest.mark.parametrize("fused", [False, True])
def test_experts(
    bench: Bench, tokens: int, count: int, used: int, width: int, inner: int, *, fused: bool
) -> None:
    joined.test_experts(bench, tokens, count, used, width, inner, fused=fused)


def test_what_runs_beside_is_not_there_before_it_is_met(bench: Bench) -> None:
    x, wanted = joined.normed(bench, np.ones((1, 64), np.float32))
    weight, w = joined.quantized(bench, np.random.default_rng(5), 32, 64)
    with bench.ops.beside():
        y = bench.ops.linear(weight, x)
    assert np.isnan(bench.ops.download(y)).all()
    bench.ops.meet()
    assert np.allclose(bench.ops.download(y), wanted @ w.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("norms", [False, True])
def test_heads(bench: Bench, *, gated: bool, norms: bool) -> None:
    joined.test_heads(bench, 16, 2, 256, 32, gated=gated, norms=norms)
    joined.test_heads(bench, 5, 5, 64, 32, gated=gated, norms=norms)


def test_gates(bench: Bench) -> None:
    joined.test_a_gate_joins_its_attention(bench)
    joined.test_gates_are_made_where_the_delta_rule_reads_them(bench)


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "start", "tokens", "window"),
    [
        *((256, 16, 2, start, 1, 0) for start in (0, 1, 31, 127, 128)),
        *((128, 6, 2, 126, 5, 0), (64, 4, 4, 40, 3, 0), (64, 18, 2, 20, 1, 0)),
        (64, 8, 4, 2_047, 2, 0),
        *((64, 8, 2, 150, 2, 128), (64, 8, 2, 0, 8, 3), (64, 4, 2, 300, 1, 20)),
    ],
)
@pytest.mark.parametrize("form", ["F32", "F16", "Q8_0"])
def test_attention(
    bench: Bench,
    size: int,
    heads: int,
    kv_heads: int,
    start: int,
    tokens: int,
    window: int,
    form: str,
) -> None:
    ops.test_attention(bench, size, heads, kv_heads, start, tokens, window, form)


def test_delta_rules(bench: Bench) -> None:
    ops.test_the_delta_rule_over_several_steps(bench, 64, 2, 4)
    ops.test_the_convolution_over_several_steps(bench)


@pytest.mark.parametrize("shape", delta.SHAPES, ids=str)
def test_delta_nets(bench: Bench, shape: delta.Shape) -> None:
    delta.test_a_delta_net_is_one_kernel(bench, shape)
    delta.test_windows_do_not_change_a_bit(bench, shape)


def test_what_joins_a_delta_rule(bench: Bench) -> None:
    for apart in ("convolution", "gates", "rule"):
        delta.test_what_is_launched_before_it_is_joined_is_the_same(bench, (apart,))
    delta.test_a_product_reads_the_norm_in_fixed_point(bench)
    delta.test_a_step_that_is_not_committed_has_changed_nothing(bench)
    delta.test_what_does_not_belong_to_it_is_not_joined(bench)
    delta.test_sizes_that_the_kernels_have_no_room_for_are_refused(bench)


@pytest.mark.parametrize("score", list(RouterScore))
@pytest.mark.parametrize(("count", "used"), [(256, 8), (512, 10), (3, 3)])
def test_routing(bench: Bench, score: RouterScore, count: int, used: int) -> None:
    for biased in (False, True):
        ops.test_routing(bench, score, count, used, biased=biased)
    ops.test_a_router_of_nans_chooses_experts_that_exist(bench)


@pytest.mark.parametrize("gate", ["", "silu", "sigmoid"])
def test_norms(bench: Bench, gate: str) -> None:
    for width in (3_104, 2_048, 128, 33, 1):
        ops.test_rms_norms(bench, width, gate)


def test_rotations(bench: Bench) -> None:
    for start in (0, 262_000):
        ops.test_rotations_at_far_positions(bench, start)


@pytest.mark.parametrize("how", sampling.SETTINGS, ids=repr)
def test_draws(bench: Bench, how: SamplingSettings) -> None:
    for count in (1, 77, 3_000):
        sampling.test_draws_are_the_hosts(bench, how, count)


def test_what_cannot_be_drawn(bench: Bench) -> None:
    sampling.test_what_cannot_be_drawn_is_said(bench)
