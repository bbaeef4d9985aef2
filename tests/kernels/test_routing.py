"""Guards against the wrong experts, or the right ones with the wrong weights."""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.router_spec import RouterScore, RouterSpec

TOKENS, EXPERTS, USED = 40, 12, 4

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def ops() -> HostOps:
    warm_up({"F32"}, "F32", lambda done, total: None)
    return HostOps()


def random_logits() -> Floats:
    return 3 * np.random.default_rng(11).standard_normal((TOKENS, EXPERTS), np.float32)


def softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    e = np.exp(x - x.max())
    return e / e.sum()


def reference(
    logits: npt.NDArray[np.float64], spec: RouterSpec
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Experts, best first, and weights of one token."""
    scores = logits
    if spec.score is RouterScore.SOFTMAX:
        scores = softmax(logits)
    elif spec.score is RouterScore.SIGMOID:
        scores = 1 / (1 + np.exp(-logits))
    bias = np.zeros(EXPERTS) if spec.selection_bias is None else spec.selection_bias
    chosen = np.argsort(-(scores + bias), kind="stable")[: spec.used].tolist()
    weights = scores[chosen]
    if spec.score is RouterScore.SELECTED:
        weights = softmax(weights)
    if spec.renormalise:
        weights = weights / max(weights.sum(), 2.0**-14)
    return chosen, weights * spec.scale


@pytest.mark.parametrize("scale", [1.0, 1.8])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("score", list(RouterScore))
def test_experts_and_weights_are_those_of_the_formula(
    ops: HostOps, score: RouterScore, biased: bool, renormalise: bool, scale: float
) -> None:
    logits = random_logits()
    bias = np.random.default_rng(12).standard_normal(EXPERTS, np.float32) if biased else None
    spec = RouterSpec(USED, score, renormalise, scale, bias)

    found = ops.route(logits, spec)

    for t in range(TOKENS):
        chosen, weights = reference(logits[t].astype(np.float64), spec)
        assert found.experts[t].tolist() == chosen
        assert np.allclose(found.weights[t], weights, atol=1e-6)


def test_a_bias_changes_the_choice_and_no_weight(ops: HostOps) -> None:
    logits = np.array([[2.0, 1.0, 0.0]], np.float32)
    bias = np.array([0.0, 0.0, 5.0], np.float32)
    found = ops.route(logits, RouterSpec(1, RouterScore.SIGMOID, selection_bias=bias))
    assert found.experts.tolist() == [[2]]
    assert found.weights.tolist() == [[0.5]]


def test_of_equal_experts_the_first_is_chosen(ops: HostOps) -> None:
    found = ops.route(np.zeros((2, EXPERTS), np.float32), RouterSpec(USED, renormalise=True))
    assert found.experts.tolist() == [list(range(USED))] * 2
    assert np.allclose(found.weights, 1 / USED)


def test_weights_of_hopeless_experts_are_not_blown_up(ops: HostOps) -> None:
    logits = np.full((1, 2), -20, np.float32)
    found = ops.route(logits, RouterSpec(2, RouterScore.SIGMOID, renormalise=True))
    assert np.allclose(found.weights, 1 / (1 + np.exp(20.0)) * 2.0**14)


def test_entries_are_sorted_by_expert(ops: HostOps) -> None:
    found = ops.route(random_logits(), RouterSpec(USED))
    routed = found.experts.reshape(-1)[found.order]
    assert routed.tolist() == sorted(routed.tolist())
    runs = zip(found.groups, found.starts[:-1], found.starts[1:], strict=True)
    assert all(set(routed[a:b].tolist()) == {int(expert)} for expert, a, b in runs)
