"""Guards against a query that sees the future, the wrong kv head, or a badly packed cache."""

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


def reference(q: Floats, k: Floats, v: Floats, scale: float) -> npt.NDArray[np.float64]:
    out = np.zeros(q.shape)
    for t in range(TOKENS):
        for h in range(HEADS):
            kv_head = h // (HEADS // KV_HEADS)
            scores = k[: t + 1, kv_head].astype(np.float64) @ q[t, h] * scale
            weights = np.exp(scores - scores.max())
            out[t, h] = weights / weights.sum() @ v[: t + 1, kv_head]
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
