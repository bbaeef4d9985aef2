"""Guards against operations that are launched together and then compute something else.

Against float64, on poisoned memory, at sizes of the 35B shape and at odd ones.
"""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight
from stratadesk.kernels.heads_form import HeadsForm
from stratadesk.kernels.router_spec import RouterSpec
from tests.gpu.bench import Bench

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
EPS = 1e-6


def random(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32)


def close(result: Floats, wanted: Doubles, allowed: float = 4e-6) -> None:
    scale = max(1.0, float(np.abs(wanted).max()))
    assert np.abs(result - wanted).max() <= allowed * scale


def quantized(bench: Bench, rng: np.random.Generator, *shape: int) -> tuple[DeviceWeight, Doubles]:
    """A random weight in Q8_0 on the card, and its values."""
    scales = rng.uniform(0.001, 0.002, (*shape[:-1], shape[-1] // 32)).astype(np.float16)
    quants = rng.integers(-127, 128, (*shape[:-1], shape[-1] // 32, 32)).astype(np.int8)
    blocks = np.concatenate([scales[..., None].view(np.uint8), quants.view(np.uint8)], axis=-1)
    values = (quants * scales[..., None].astype(np.float64)).reshape(shape)
    return bench.weight(blocks.reshape(-1), "Q8_0", shape), values


def silu(x: Doubles) -> Doubles:
    return x / (1 + np.exp(-x))


def sigmoid(x: npt.NDArray[np.floating]) -> Doubles:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def normed(bench: Bench, x: Floats) -> tuple[DeviceTensor, Doubles]:
    """x / its root mean square on the card, as products find it, in fixed point too."""
    weight = bench.tensor(np.ones(x.shape[-1], np.float32))
    double = x.astype(np.float64)
    wanted = double / np.sqrt((double**2).mean(axis=-1, keepdims=True) + EPS)
    return bench.ops.rms_norm(bench.tensor(x), weight, EPS), wanted


@pytest.mark.parametrize("tokens", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("columns", [2_048, 128, 96])
def test_products_of_one_input_in_one_launch(bench: Bench, tokens: int, columns: int) -> None:
    rng = np.random.default_rng(tokens)
    x, wanted = normed(bench, random(rng, tokens, columns))
    rows = (8_192, 33, 1) if columns == 2_048 else (40, 33, 1)
    weights = [quantized(bench, rng, n, columns) for n in rows]
    before = bench.ops.launches
    results = [bench.ops.linear(weight, x) for weight, _ in weights]
    bench.ops.flush()
    assert bench.ops.launches == before + 1
    for result, (_, values) in zip(results, weights, strict=True):
        close(bench.ops.download(result), wanted @ values.T)


@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_a_product_that_is_summed_where_it_is_made(bench: Bench, tokens: int) -> None:
    rng = np.random.default_rng(7)
    h, wanted = normed(bench, random(rng, tokens, 512))
    weight, values = quantized(bench, rng, 2_048, 512)
    base, residual, gate = (random(rng, tokens, n) for n in (2_048, 2_048, 1))
    x, out, scaled = bench.tensor(residual), bench.tensor(base), bench.tensor(gate)
    before = bench.ops.launches
    bench.ops.add_gated(out, bench.ops.linear(weight, h), scaled)
    bench.ops.add(x, out)
    bench.ops.flush()
    assert bench.ops.launches == before + 1
    product = wanted @ values.T
    close(bench.ops.download(x), residual + base + product * sigmoid(gate))
    bench.ops.add(x, bench.ops.linear(weight, h))
    close(bench.ops.download(x), residual + base + product * (1 + sigmoid(gate)))
    bench.ops.add_gated(x, bench.ops.linear(weight, h), scaled)
    close(bench.ops.download(x), residual + base + product * (1 + 2 * sigmoid(gate)))


@pytest.mark.parametrize("tokens", [1, 4, 6])
@pytest.mark.parametrize(("width", "inner"), [(2_048, 512), (96, 96), (64, 36)])
def test_feed_forwards(bench: Bench, tokens: int, width: int, inner: int) -> None:
    rng = np.random.default_rng(inner)
    x, wanted = normed(bench, random(rng, tokens, width))
    (gate, g), (up, u) = (quantized(bench, rng, inner, width) for _ in range(2))
    if inner % 32:
        d = random(rng, width, inner).astype(np.float64)
        down = bench.weight(d.astype(np.float32).view(np.uint8).reshape(-1), "F32", d.shape)
    else:
        down, d = quantized(bench, rng, width, inner)
    result = bench.ops.feed_forward(gate, up, down, x)
    hidden = silu(wanted @ g.T) * (wanted @ u.T)
    close(bench.ops.download(result), hidden @ d.T)


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(
    ("count", "used", "width", "inner"), [(256, 8, 2_048, 512), (5, 3, 96, 64), (16, 1, 64, 32)]
)
@pytest.mark.parametrize("fused", [False, True])
def test_experts(
    bench: Bench, tokens: int, count: int, used: int, width: int, inner: int, *, fused: bool
) -> None:
    rng = np.random.default_rng(count)
    x, wanted = normed(bench, random(rng, tokens, width))
    count = min(count, 24)
    gate_up, gu = quantized(bench, rng, count, 2 * inner, width)
    down, d = quantized(bench, rng, count, width, inner)
    half = gate_up.matrix_bytes // 2
    if fused:
        parts = (gate_up, down)
    else:
        split = [
            np.ascontiguousarray(raw)
            for raw in np.split(_bytes_of(bench, gate_up).reshape(count, 2, half), 2, axis=1)
        ]
        parts = (
            *(bench.weight(raw.reshape(-1), "Q8_0", (count, inner, width)) for raw in split),
            down,
        )
    layer = bench.ops.expert_layer(0, parts)
    one_more, m = quantized(bench, rng, width, width)
    gates = random(rng, tokens, 1)
    gate = bench.tensor(gates)
    logits = random(rng, tokens, count)
    chosen = bench.ops.route(bench.tensor(logits), RouterSpec(used))
    residual = random(rng, tokens, width)
    target = bench.tensor(residual)
    with bench.ops.beside():
        beside = bench.ops.linear(one_more, x)
    out = bench.ops.experts(layer, x, chosen)
    bench.ops.meet()
    bench.ops.add_gated(out, beside, gate)
    bench.ops.add(target, out)
    result = bench.ops.download(target)
    experts = bench.ops.download(chosen.experts).view(np.int32)
    weights = bench.ops.download(chosen.weights).astype(np.float64)
    total = residual + (wanted @ m.T) / (1 + np.exp(-gates.astype(np.float64)))
    for t in range(tokens):
        for k, expert in enumerate(experts[t]):
            g, u = gu[expert, :inner], gu[expert, inner:]
            hidden = silu(wanted[t] @ g.T) * (wanted[t] @ u.T)
            total[t] += weights[t, k] * (hidden @ d[expert].T)
    close(result, total)


def _bytes_of(bench: Bench, weight: DeviceWeight) -> npt.NDArray[np.uint8]:
    n_bytes = weight.matrices * weight.matrix_bytes
    words = DeviceTensor(weight.address, (-(-n_bytes // 4),))
    return bench.ops.download(words).view(np.uint8)[:n_bytes]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize(("heads", "keys", "size", "pairs"), [(16, 2, 256, 32), (5, 5, 64, 32)])
def test_heads(
    bench: Bench, heads: int, keys: int, size: int, pairs: int, *, gated: bool, norms: bool
) -> None:
    rng = np.random.default_rng(heads)
    tokens, start = 3, 1_000
    q = random(rng, tokens, heads * size * (1 + gated))
    k = random(rng, tokens, keys * size)
    weights = [random(rng, size), random(rng, size)]
    frequencies = 1e4 ** (-np.arange(pairs) / pairs)
    bench.stand(start)
    rope = bench.ops.rope_table(0, tokens, frequencies, 1.0)
    places = tuple(bench.tensor(x) if norms else None for x in weights)
    form = HeadsForm(heads, keys, size, gated, EPS)
    found = bench.ops.prepare_heads(bench.tensor(q), bench.tensor(k), form, places, rope)
    rows = q.reshape(tokens, heads, -1, size)
    angles = np.arange(start, start + tokens)[:, None, None] * frequencies
    for result, x, weight in zip(
        found[:2], (rows[:, :, 0], k.reshape(tokens, keys, size)), weights, strict=True
    ):
        wanted = x.astype(np.float64)
        if norms:
            wanted = wanted / np.sqrt((wanted**2).mean(axis=-1, keepdims=True) + EPS) * weight
        a, b = wanted[..., :pairs].copy(), wanted[..., pairs : 2 * pairs].copy()
        wanted[..., :pairs] = a * np.cos(angles) - b * np.sin(angles)
        wanted[..., pairs : 2 * pairs] = a * np.sin(angles) + b * np.cos(angles)
        close(bench.ops.download(result), wanted)
    if gated:
        assert np.array_equal(
            bench.ops.download(found[2]).reshape(rows[:, :, 1].shape), rows[:, :, 1]
        )
    else:
        assert found[2] is None


def test_a_gate_joins_its_attention(bench: Bench) -> None:
    rng = np.random.default_rng(2)
    tokens, heads, kv_heads, size = 2, 16, 2, 256
    q, k, v = (random(rng, tokens, n, size) for n in (heads, kv_heads, kv_heads))
    gate = random(rng, tokens, heads * size)
    cache = bench.ops.kv_cache("F16", 512, kv_heads, size)
    places = [bench.tensor(x) for x in (q, k, v)]
    plain = bench.ops.download(bench.ops.attention(*places, cache, 0, 0.05))
    before, scaled = bench.ops.launches, bench.tensor(gate)
    o = bench.ops.attention(*places, cache, 0, 0.05)
    bench.ops.multiply_sigmoid(o, scaled)
    bench.ops.flush()
    assert bench.ops.launches == before + 3
    close(bench.ops.download(o), plain * sigmoid(gate))


def test_gates_are_made_where_the_delta_rule_reads_them(bench: Bench) -> None:
    rng = np.random.default_rng(3)
    tokens, size, key_heads, value_heads = 3, 128, 16, 32
    convolved = random(rng, tokens, (2 * key_heads + value_heads) * size)
    raw = [random(rng, tokens, value_heads) for _ in range(2)]
    dt, a = random(rng, value_heads), -np.abs(random(rng, value_heads))
    heads = np.arange(value_heads, dtype=np.int32) % key_heads
    results = []
    for apart in (False, True):
        bench.stand(0)
        state = bench.ops.delta_state(4, convolved.shape[1], value_heads, size)
        places = [bench.tensor(x) for x in (*raw, dt, a)]
        bench.ops.delta_gates(*places)
        if apart:
            bench.ops.flush()
            rate = bench.ops.download(places[0])
            close(rate, sigmoid(raw[0]))
            decay = np.exp(np.log1p(np.exp(raw[1].astype(np.float64) + dt)) * a)
            close(bench.ops.download(places[1]), decay)
        out = bench.ops.delta_rule(bench.tensor(convolved), *places[:2], heads, EPS, state)
        results.append(bench.ops.download(out))
    assert np.array_equal(*results)
