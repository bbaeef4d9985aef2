"""Guards against a query that sees the future, the wrong kv head, or a badly packed cache.

And against windows one token too wide or narrow, and sinks that are scaled or have a value.
"""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.backend import HostOps

TOKENS, HEADS, KV_HEADS, SIZE = 12, 6, 2, 32

Floats = npt.NDArray[np.float32]


def random_qkv() -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(7)
    q = rng.standard_normal((TOKENS, HEADS, SIZE), np.float32)
    k = rng.standard_normal((TOKENS, KV_HEADS, SIZE), np.float32)
    return q, k, rng.standard_normal((TOKENS, KV_HEADS, SIZE), np.float32)


def reference(
    q: Floats,
    k: Floats,
    v: Floats,
    scale: float,
    window: int = TOKENS,
    sinks: Floats | None = None,
) -> npt.NDArray[np.float64]:
    out = np.zeros(q.shape)
    for t in range(TOKENS):
        seen = [j for j in range(TOKENS) if 0 <= t - j < window]
        for h in range(HEADS):
            kv_head = h // (HEADS // KV_HEADS)
            weights = np.exp(k[seen, kv_head].astype(np.float64) @ q[t, h] * scale)
            total = weights.sum() + (0 if sinks is None else np.exp(float(sinks[h])))
            out[t, h] = weights / total @ v[seen, kv_head]
    return out.reshape(TOKENS, -1)


@pytest.mark.parametrize(("name", "allowed"), [("F32", 1e-5), ("F16", 2e-3), ("Q8_0", 3e-2)])
def test_attention_over_every_cache_format(name: str, allowed: float) -> None:
    ATTENTION[name].compile()
    ops, (q, k, v) = HostOps(), random_qkv()
    wanted = reference(q, k, v, 0.3)
    whole = None
    for chunk in (TOKENS, 1, 5):
        cache = ops.kv_cache(name, TOKENS, KV_HEADS, SIZE)
        parts = [
            ops.attention(q[i : i + chunk], k[i : i + chunk], v[i : i + chunk], cache, i, 0.3)
            for i in range(0, TOKENS, chunk)
        ]
        got = np.concatenate(parts)
        assert np.abs(got - wanted).max() < allowed
        whole = got if whole is None else whole
        assert np.array_equal(got, whole)


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("window", [1, 4, TOKENS - 1, TOKENS, 100])
def test_windows_and_sinks(window: int, with_sinks: bool) -> None:
    ATTENTION["F32"].compile()
    ops, (q, k, v) = HostOps(), random_qkv()
    sinks = np.array([-9, -1, 0, 1, 3, 9], np.float32) if with_sinks else None
    wanted = reference(q, k, v, 0.3, window, sinks)
    whole = None
    for chunk in (TOKENS, 1, 5):
        cache = ops.kv_cache("F32", TOKENS, KV_HEADS, SIZE)
        how = {"window": window, "sinks": sinks}
        spans = [slice(i, i + chunk) for i in range(0, TOKENS, chunk)]
        parts = [ops.attention(q[s], k[s], v[s], cache, s.start, 0.3, **how) for s in spans]
        got = np.concatenate(parts)
        assert np.abs(got - wanted).max() < 1e-5
        whole = got if whole is None else whole
        assert np.array_equal(got, whole)


def test_a_sink_far_above_all_scores_leaves_nothing() -> None:
    ATTENTION["F32"].compile()
    ops, (q, k, v) = HostOps(), random_qkv()
    cache = ops.kv_cache("F32", TOKENS, KV_HEADS, SIZE)
    got = ops.attention(q, k, v, cache, 0, 0.3, sinks=np.full(HEADS, 1e4, np.float32))
    assert np.array_equal(got, np.zeros_like(got))
