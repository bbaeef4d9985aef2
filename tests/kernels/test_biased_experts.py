"""Guards against biases of another expert, and against gates clamped on the wrong side."""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.expert_form import Activation, ExpertBiases, ExpertForm
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.biased_experts import clamped_swiglu
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.host.weights import HostWeight
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

Floats = npt.NDArray[np.float32]

EXPERTS, WIDTH, INNER, TOKENS, USED = 5, 24, 20, 9, 2


@pytest.fixture(scope="module")
def ops() -> HostOps:
    warm_up({"F32"}, "F32", lambda done, total: None, ("biased_experts",))
    return HostOps()


def weight_of(ops: HostOps, values: Floats) -> HostWeight:
    return ops.weight(values.reshape(-1).view(np.uint8), "F32", values.shape)


def activation(g: npt.NDArray[np.float64], u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    g, u = np.minimum(g, 7), np.clip(u, -7, 7)
    return g / (1 + np.exp(-1.702 * g)) * (u + 1)


def test_gates_are_clamped_from_above_and_ups_on_both_sides() -> None:
    clamped_swiglu.compile()
    g = np.array([-30, -8, -1, 0, 3, 7, 9], np.float32)
    u = np.array([-9, -7, -1, 0, 2, 7, 30], np.float32)
    pairs = np.array([(a, b) for a in g for b in u], np.float32)
    out = np.empty((len(pairs), 1), np.float32)
    clamped_swiglu(pairs, out)
    wanted = activation(*pairs.astype(np.float64).T)
    assert np.allclose(out[:, 0], wanted, rtol=1e-5, atol=1e-6)


def test_every_expert_adds_its_own_biases(ops: HostOps) -> None:
    rng = np.random.default_rng(5)

    def random(*shape: int) -> Floats:
        return rng.standard_normal(shape, np.float32)

    gate, up = random(EXPERTS, INNER, WIDTH), random(EXPERTS, INNER, WIDTH)
    down, x = random(EXPERTS, WIDTH, INNER), random(TOKENS, WIDTH)
    biases = ExpertBiases(random(EXPERTS, INNER), random(EXPERTS, INNER), random(EXPERTS, WIDTH))
    form = ExpertForm(Activation.CLAMPED, biases)
    chosen = ops.route(random(TOKENS, EXPERTS), RouterSpec(USED, RouterScore.SELECTED))
    parts = [weight_of(ops, part) for part in (gate, up, down)]

    got = ops.experts(ops.expert_layer(0, parts, form), x, chosen)

    for t in range(TOKENS):
        wanted = np.zeros(WIDTH)
        for e, share in zip(chosen.experts[t], chosen.weights[t], strict=True):
            g = gate[e].astype(np.float64) @ x[t] + biases.gate[e]
            u = up[e].astype(np.float64) @ x[t] + biases.up[e]
            wanted += share * (down[e] @ activation(g, u) + biases.down[e])
        assert np.allclose(got[t], wanted, atol=1e-3)


def test_a_token_of_a_batch_has_the_bits_it_has_alone(ops: HostOps) -> None:
    rng = np.random.default_rng(6)
    shapes = ((EXPERTS, INNER, WIDTH), (EXPERTS, INNER, WIDTH), (EXPERTS, WIDTH, INNER))
    parts = [weight_of(ops, rng.standard_normal(shape, np.float32)) for shape in shapes]
    rows = ((EXPERTS, INNER), (EXPERTS, INNER), (EXPERTS, WIDTH))
    biases = ExpertBiases(*(rng.standard_normal(shape, np.float32) for shape in rows))
    layer = ops.expert_layer(0, parts, ExpertForm(Activation.CLAMPED, biases))
    x = rng.standard_normal((TOKENS, WIDTH), np.float32)
    logits = rng.standard_normal((TOKENS, EXPERTS), np.float32)
    spec = RouterSpec(USED, RouterScore.SELECTED)
    whole = ops.experts(layer, x, ops.route(logits, spec))
    for t in range(TOKENS):
        alone = ops.experts(layer, x[t : t + 1], ops.route(logits[t : t + 1], spec))
        assert np.array_equal(alone[0], whole[t])
