"""Guards against kernels that are wrong at the sizes of real models, or at odd ones.

Against float64, on poisoned memory, with fresh random inputs.
"""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.cuda.states import CudaKvCache
from stratadesk.kernels.router_spec import RouterScore, RouterSpec
from tests.gpu.bench import Bench

Doubles = npt.NDArray[np.float64]
EPS = 1e-6


def random(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return rng.standard_normal(shape, np.float32)


def close(result: npt.NDArray[np.float32], wanted: Doubles, allowed: float = 2e-6) -> None:
    scale = max(1.0, float(np.abs(wanted).max()))
    assert np.abs(result - wanted).max() <= allowed * scale


def sigmoid(x: npt.NDArray[np.float32]) -> Doubles:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


@pytest.mark.parametrize("width", [8_192, 2_048, 384, 128, 33, 1])
@pytest.mark.parametrize("gate", ["", "silu", "sigmoid"])
def test_rms_norms(bench: Bench, width: int, gate: str) -> None:
    rng = np.random.default_rng(width)
    x, z, weight = random(rng, 5, width), random(rng, 5, width), random(rng, width)
    places = [bench.tensor(values) for values in (x, z, weight)]
    double = x.astype(np.float64)
    wanted = double / np.sqrt((double**2).mean(axis=1, keepdims=True) + EPS) * weight
    if not gate:
        result = bench.ops.rms_norm(places[0], places[2], EPS)
    elif gate == "silu":
        result = bench.ops.rms_norm_silu_gate(*places, EPS)
        wanted *= z * sigmoid(z)
    else:
        result = bench.ops.rms_norm_sigmoid_gate(*places, EPS)
        wanted *= sigmoid(z)
    close(bench.ops.download(result), wanted)


@pytest.mark.parametrize("start", [0, 31_997, 262_000])
def test_rotations_at_far_positions(bench: Bench, start: int) -> None:
    rng = np.random.default_rng(start)
    heads, size, pairs = 16, 256, 32
    x = random(rng, 3, heads, size)
    frequencies = 1e7 ** (-np.arange(pairs) / pairs)
    bench.stand(start)
    place = bench.tensor(x)
    bench.ops.rotate_halves(place, bench.ops.rope_table(0, 3, frequencies, 1.0))
    angles = np.arange(start, start + 3)[:, None, None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    wanted = x.astype(np.float64)
    a, b = wanted[..., :pairs].copy(), wanted[..., pairs : 2 * pairs].copy()
    wanted[..., :pairs], wanted[..., pairs : 2 * pairs] = a * cos - b * sin, a * sin + b * cos
    close(bench.ops.download(place), wanted)


def softmax_attention(
    q: Doubles, keys: Doubles, values: Doubles, start: int, window: int, sinks: Doubles | None
) -> Doubles:
    out = np.empty_like(q)
    tokens, heads, size = q.shape
    for t in range(tokens):
        end = start + t + 1
        first = max(0, end - window) if window else 0
        for h in range(heads):
            kv = h // (heads // keys.shape[1])
            scores = keys[first:end, kv] @ q[t, h] / np.sqrt(size)
            top = scores.max() if sinks is None else max(scores.max(), sinks[h])
            weights = np.exp(scores - top)
            total = weights.sum() + (0 if sinks is None else np.exp(sinks[h] - top))
            out[t, h] = weights @ values[first:end, kv] / total
    return out


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "start", "tokens", "window"),
    [
        *((256, 16, 2, start, 1, 0) for start in (0, 1, 31, 127, 128, 129, 1_500)),
        *((256, 16, 2, start, 5, 0) for start in (0, 126, 2_045, 4_500)),
        *((128, 32, 4, 700, 8, 0), (64, 4, 4, 300, 3, 0)),
        *((64, 8, 2, 500, 4, 128), (64, 8, 2, 0, 8, 3)),
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
    rng = np.random.default_rng(start + size)
    cache: CudaKvCache = bench.ops.kv_cache(form, start + tokens + 100, kv_heads, size)
    keys, values = (random(rng, start + tokens, kv_heads, size) for _ in range(2))
    q, sinks = random(rng, tokens, heads, size), random(rng, heads)
    for first in range(0, start, 8):
        part = slice(first, min(first + 8, start))
        bench.stand(first)
        with bench.ops.scope():
            bench.ops.store(bench.tensor(keys[part]), bench.tensor(values[part]), cache)
    bench.stand(start)
    places = [bench.tensor(x) for x in (q, keys[start:], values[start:])]
    result = bench.ops.attention(
        *places, cache, 0, 1 / np.sqrt(size), window=window, sinks=bench.tensor(sinks)
    )
    stored = [_stored(x, form) for x in (keys, values)]
    wanted = softmax_attention(q.astype(np.float64), *stored, start, window, sinks)
    close(bench.ops.download(result).reshape(wanted.shape), wanted)


def _stored(x: npt.NDArray[np.float32], form: str) -> Doubles:
    if form == "F16":
        return x.astype(np.float16).astype(np.float64)
    if form == "Q8_0":
        blocks = x.reshape(-1, 32)
        scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
        quants = np.rint(blocks * (np.float32(1) / scales))
        return (quants * scales.astype(np.float16)).reshape(x.shape).astype(np.float64)
    return x.astype(np.float64)


@pytest.mark.parametrize(("size", "key_heads", "value_heads"), [(128, 16, 32), (64, 2, 4)])
def test_the_delta_rule_over_several_steps(
    bench: Bench, size: int, key_heads: int, value_heads: int
) -> None:
    rng = np.random.default_rng(size)
    channels = (2 * key_heads + value_heads) * size
    state = bench.ops.delta_state(4, channels, value_heads, size)
    heads = np.arange(value_heads, dtype=np.int32) % key_heads
    memory = np.zeros((value_heads, size, size))
    side = 0
    for tokens in (1, 5, 8, 1):
        convolved = random(rng, tokens, channels)
        beta, decay = rng.random((2, tokens, value_heads), np.float32)
        bench.stand(0, side)
        places = [bench.tensor(x) for x in (convolved, beta, decay)]
        result = bench.ops.delta_rule(*places, heads, EPS, state)
        wanted = _delta_steps(convolved, beta, decay, heads, key_heads, memory)
        close(bench.ops.download(result), wanted)
        side = 1 - side


def _delta_steps(
    convolved: npt.NDArray[np.float32],
    beta: npt.NDArray[np.float32],
    decay: npt.NDArray[np.float32],
    heads: npt.NDArray[np.int32],
    key_heads: int,
    memory: Doubles,
) -> Doubles:
    value_heads, size, _ = memory.shape
    out = np.empty((len(convolved), value_heads, size))
    for t, row in enumerate(convolved.astype(np.float64)):
        parts = row.reshape(-1, size)
        q, k, v = np.split(parts, [key_heads, 2 * key_heads])
        q = q / np.sqrt((q**2).sum(axis=1, keepdims=True) + EPS) / np.sqrt(size)
        k = k / np.sqrt((k**2).sum(axis=1, keepdims=True) + EPS)
        for j in range(value_heads):
            key = k[heads[j]]
            memory[j] *= decay[t, j]
            delta = beta[t, j] * (v[j] - memory[j].T @ key)
            memory[j] += np.outer(key, delta)
            out[t, j] = memory[j].T @ q[heads[j]]
    return out


def test_the_convolution_over_several_steps(bench: Bench) -> None:
    rng = np.random.default_rng(4)
    channels, taps = 8_192, 4
    state = bench.ops.delta_state(taps, channels, 32, 128)
    weight = random(rng, channels, taps)
    seen = np.zeros((taps - 1, channels))
    side = 0
    for tokens in (1, 1, 2, 8, 1):
        u = random(rng, tokens, channels)
        bench.stand(0, side)
        result = bench.ops.causal_convolution(bench.tensor(u), bench.tensor(weight), state)
        rows = np.concatenate([seen, u])
        sums = sum(rows[j : j + tokens] * weight[:, j] for j in range(taps))
        close(bench.ops.download(result), sums / (1 + np.exp(-sums)))
        seen, side = rows[-(taps - 1) :], 1 - side


@pytest.mark.parametrize("score", list(RouterScore))
@pytest.mark.parametrize(("count", "used"), [(256, 8), (16, 4), (512, 10), (3, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_routing(bench: Bench, score: RouterScore, count: int, used: int, *, biased: bool) -> None:
    rng = np.random.default_rng(count)
    logits, bias = random(rng, 6, count), random(rng, count)
    logits[0, count // 2] = logits[0, 0] = logits[1, 1] = logits[1, 0] = 5
    place = bench.tensor(bias) if biased else None
    spec = RouterSpec(used, score, renormalise=True, scale=1.5, selection_bias=place)
    chosen = bench.ops.route(bench.tensor(logits), spec)
    double = logits.astype(np.float64)
    softmax = np.exp(double - double.max(axis=1, keepdims=True))
    scores = {
        RouterScore.SOFTMAX: softmax / softmax.sum(axis=1, keepdims=True),
        RouterScore.SIGMOID: sigmoid(logits),
        RouterScore.SELECTED: double,
    }[score]
    ranks = scores + bias if biased else scores
    wanted = np.argsort(-ranks, axis=1, kind="stable")[:, :used]
    experts = bench.ops.download(chosen.experts).view(np.int32)
    assert np.array_equal(experts, wanted)
    kept = np.take_along_axis(scores, wanted, axis=1)
    if score is RouterScore.SELECTED:
        kept = np.exp(kept - kept.max(axis=1, keepdims=True))
    close(bench.ops.download(chosen.weights), kept / kept.sum(axis=1, keepdims=True) * 1.5)


def test_a_router_of_nans_chooses_experts_that_exist(bench: Bench) -> None:
    logits = bench.tensor(np.full((2, 16), np.nan, np.float32))
    chosen = bench.ops.route(logits, RouterSpec(4, RouterScore.SOFTMAX))
    experts = bench.ops.download(chosen.experts).view(np.int32)
    assert np.array_equal(experts, [[0, 1, 2, 3]] * 2)
