"""Guards against residual streams that are mixed or fed wrongly, and n-grams hashed wrongly."""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.host.weights import HostWeight
from stratadesk.kernels.ngram_hash import NgramHash

TOKENS, STREAMS, WIDTH, RANK = 9, 3, 16, 5
WIDE = STREAMS * WIDTH
EPS = 1e-6

Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def ops() -> HostOps:
    warm_up({"F32"}, "F32", lambda done, total: None, ["streams", "ngrams", "delta_net"])
    return HostOps()


def normal(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def weight(values: Floats) -> HostWeight:
    return HostWeight.wrap(values.reshape(-1).view(np.uint8), "F32", values.shape)


def sigmoid(x: Wide) -> Wide:
    return 1 / (1 + np.exp(-x))


def normed(x: Floats, norm: Floats) -> Wide:
    """RMS norm per stream in float64, [T, c, E]."""
    wide = x.reshape(len(x), STREAMS, WIDTH).astype(np.float64)
    wide = wide / np.sqrt((wide * wide).mean(axis=2, keepdims=True) + EPS)
    return wide * norm.reshape(STREAMS, WIDTH)


def test_streams_are_mixed_as_defined(ops: HostOps) -> None:
    x, norm = 3 * normal(1, TOKENS, WIDE), normal(2, WIDE)
    down, up, inject = normal(3, RANK, WIDE), normal(4, WIDE, RANK), normal(5, STREAMS, WIDE)
    f = normed(x, norm)
    flat = f.reshape(TOKENS, WIDE)
    low = flat @ down.T / STREAMS
    gate = (low * sigmoid(low)) @ up.T
    wanted = (f * sigmoid(gate).reshape(f.shape)).mean(axis=1)

    weights = (weight(down), weight(up))
    mixed, injected = ops.mix_streams(x, norm, weights, weight(inject), STREAMS, EPS)
    assert injected is not None
    assert np.allclose(mixed, wanted, atol=1e-5)
    assert np.allclose(injected, flat @ inject.T, atol=1e-4)
    alone = [ops.mix_streams(row[None], norm, weights, None, STREAMS, EPS) for row in x]
    assert all(injected is None for _, injected in alone)
    assert np.array_equal(np.concatenate([mixed for mixed, _ in alone]), mixed)

    fed, y = x.copy(), normal(6, TOKENS, WIDTH)
    ops.feed_streams(fed, y, injected)
    factors = 2 * sigmoid(injected.astype(np.float64) / STREAMS)
    assert np.allclose(fed.reshape(f.shape), x.reshape(f.shape) + y[:, None] * factors[..., None])


def test_all_streams_begin_as_the_embedding(ops: HostOps) -> None:
    table = normal(7, 20, WIDTH)
    x = ops.embed_streams(weight(table), np.array([3, 19], np.int32), STREAMS)
    assert np.array_equal(x.reshape(2, STREAMS, WIDTH)[:, 1], table[[3, 19]])
    assert np.array_equal(x, np.tile(table[[3, 19]], STREAMS))


def test_a_norm_in_place_is_the_norm(ops: HostOps) -> None:
    x, norm = normal(8, TOKENS, WIDE), normal(9, WIDE)
    wanted = ops.stream_norm(x, norm, STREAMS, EPS)
    assert np.allclose(wanted, normed(x, norm).reshape(TOKENS, WIDE), atol=1e-5)
    ops.norm_streams(x, norm, STREAMS, EPS)
    assert np.array_equal(x, wanted)


def test_a_delta_nets_gate_may_be_a_sigmoid(ops: HostOps) -> None:
    x, z, norm = normal(10, 4, 2, WIDTH), normal(11, 4, 2 * WIDTH), normal(12, WIDTH)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide * wide).mean(axis=2, keepdims=True) + EPS) * norm
    wanted = wanted * sigmoid(z.reshape(x.shape).astype(np.float64))
    assert np.allclose(ops.rms_norm_sigmoid_gate(x, z, norm, EPS), wanted, atol=1e-5)


END = 17
HASH = NgramHash(
    multipliers=np.array([2**63 + 11, 30_016_641_854_305, 2**64 - 59], np.uint64),
    sizes=np.array([101, 103, 107, 109], np.uint64),
    offsets=np.array([0, 101, 204, 311], np.uint64),
    end_token=END,
)


def hashed(tokens: list[int], at: int) -> list[int]:
    """Rows of the token at `at` with Python's whole numbers."""
    before = tokens[:at][::-1]
    if END in before:
        before = before[: before.index(END)]
    window = [tokens[at], *before, END, END]
    rows = []
    for g in range(HASH.heads):
        mixed = 0
        for back in range(2 + g // 2):
            mixed ^= window[back] * int(HASH.multipliers[back]) % 2**64
        rows.append(mixed % int(HASH.sizes[g]) + int(HASH.offsets[g]))
    return rows


@pytest.mark.parametrize("chunk", [1, 2, 5, 60])
def test_ngrams_are_hashed_with_64_bits_and_stop_at_an_end_token(ops: HostOps, chunk: int) -> None:
    tokens = np.random.default_rng(15).integers(0, 1_500, 60).astype(np.int32)
    tokens[[0, 7, 20, 21, 40, 42]] = END
    state = ops.ngram_state(HASH, 4, WIDE)
    rows = []
    for i in range(0, 60, chunk):
        first = ops.ngram_rows(tokens[i : i + chunk], HASH, state)
        # A chunk that failed before it was committed is computed again.
        rows.append(ops.ngram_rows(tokens[i : i + chunk], HASH, state))
        assert np.array_equal(first, rows[-1])
        state.commit()
    found = np.concatenate(rows).reshape(60, 4)
    listed = tokens.tolist()
    assert found.tolist() == [hashed(listed, t) for t in range(60)]


def test_a_token_without_predecessors_reads_end_tokens() -> None:
    assert hashed([5], 0) == hashed([END, 5], 1) == hashed([9, END, 5], 2)
    assert hashed([END, END], 1) == hashed([END], 0)


def test_values_are_gated_per_stream(ops: HostOps) -> None:
    key, query, value = (
        normal(16, TOKENS, WIDE),
        normal(17, TOKENS, WIDE),
        normal(18, TOKENS, WIDTH),
    )
    key[0], key[1] = 0, 1e-9
    shape = (TOKENS, STREAMS, WIDTH)
    products = key.reshape(shape).astype(np.float64) * query.reshape(shape)
    z = products.sum(axis=2) / np.sqrt(WIDTH)
    gates = sigmoid(np.sign(z) * np.sqrt(np.maximum(np.abs(z), 1e-6)))
    found = ops.gate_into_streams(key, query, value).reshape(shape)
    assert np.allclose(found, gates[..., None] * value[:, None], atol=1e-5)
    assert np.allclose(found[0], value[0] / 2, atol=1e-6)


def test_the_convolution_skips_rows_and_looks_back_over_chunks(ops: HostOps) -> None:
    u, kernel, x = normal(19, 20, WIDE), normal(20, WIDE, 4), normal(21, 20, WIDE)
    padded = np.concatenate([np.zeros((9, WIDE)), u.astype(np.float64)])
    sums = sum(padded[3 * k : 3 * k + 20] * kernel[:, k] for k in range(4))
    wanted = x + sums * sigmoid(sums)
    whole = None
    for chunk in (20, 1, 2, 7):
        state, out = ops.ngram_state(HASH, 4, WIDE), x.copy()
        for i in range(0, 20, chunk):
            ops.add_convolved(out[i : i + chunk], u[i : i + chunk], kernel, HASH.length, state)
            state.commit()
        assert np.allclose(out, wanted, atol=1e-5)
        whole = out if whole is None else whole
        assert np.array_equal(out, whole)
        assert np.array_equal(state.rows.rows, u[-9:])
