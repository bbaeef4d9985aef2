"""Guards against queries that see the wrong tokens, or memory that is no token's.

The reference sorts blocks the slow way; ties are settled for the earlier block, as documented.
"""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.index_state import HostIndexState
from stratadesk.kernels.host.warm_up import warm_up

HEADS, SIZE, BLOCK = 3, 8, 4
FREQUENCIES = np.array([1.0, 0.1])
EPS = 1e-6

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def ops() -> HostOps:
    for kv_format in ("F32", "F16", "Q8_0"):
        warm_up({"F32"}, kv_format, lambda done, total: None, ["block_attention"])
    return HostOps()


def state_with_keys(ops: HostOps, keys: Floats, block: int = BLOCK) -> HostIndexState:
    state = ops.index_state(len(keys) * block, block, SIZE)
    state.keys[:] = keys
    return state


def seen_by(q: Floats, keys: Floats, position: int, block: int, budget: int) -> list[int]:
    """Tokens that one query sees, by sorting blocks of all scores."""
    blocks = (position + 1) // block
    tail = list(range(blocks * block, position + 1))
    scores = [sum(max(0.0, float(head @ keys[b])) for head in q) for b in range(blocks)]
    seen, left = list[int](), budget - len(tail)
    for b in sorted(range(blocks), key=lambda b: (-scores[b], b)):
        seen += range(b * block, b * block + min(left, block))
        left -= min(left, block)
    return sorted([*seen, *tail])


@pytest.mark.parametrize(("block", "budget"), [(4, 19), (4, 4), (4, 7), (4, 6), (1, 5), (5, 50)])
def test_each_query_sees_its_best_blocks_and_its_tail(
    ops: HostOps, block: int, budget: int
) -> None:
    rng = np.random.default_rng(block + budget)
    # Small whole numbers have exact sums and many ties, among them scores of zero.
    keys = rng.integers(-2, 3, (40 // block, SIZE)).astype(np.float32)
    q = rng.integers(-1, 2, (40, HEADS, SIZE)).astype(np.float32)
    state = state_with_keys(ops, keys, block)
    visible = ops.select_keys(q, 0, budget, state)
    for p in range(40):
        wanted = seen_by(q[p], keys, p, block, budget)
        assert visible[p, : min(budget, p + 1)].tolist() == wanted
        assert len(wanted) == min(budget, p + 1)
    for start in (1, 22, 39):
        again = ops.select_keys(q[start:], start, budget, state)
        assert np.array_equal(again[-1, : min(budget, 40)], visible[-1, : min(budget, 40)])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_choose_tokens_all_the_same(ops: HostOps, poison: float) -> None:
    rng = np.random.default_rng(8)
    keys = rng.standard_normal((10, SIZE)).astype(np.float32)
    q = rng.standard_normal((40, HEADS, SIZE)).astype(np.float32)
    keys[3:6] = poison
    q[30:] = poison
    visible = ops.select_keys(q, 0, 9, state_with_keys(ops, keys))
    for p in range(40):
        seen = visible[p, : min(9, p + 1)].tolist()
        assert len(set(seen)) == len(seen)
        assert seen == sorted(seen)
        assert seen[0] >= 0
        assert seen[-1] == p or (p + 1) % BLOCK == 0


def block_key(rows: npt.NDArray[np.float64], norm: Floats, block: int) -> Floats:
    """rope(rms(mean)) of a block in float64."""
    mean = rows[block * BLOCK : (block + 1) * BLOCK].mean(axis=0)
    key = mean / np.sqrt((mean * mean).mean() + EPS) * norm
    pairs = FREQUENCIES.size
    turned = (key[:pairs] + 1j * key[pairs : 2 * pairs]) * np.exp(1j * block * BLOCK * FREQUENCIES)
    return np.concatenate([turned.real, turned.imag, key[2 * pairs :]]).astype(np.float32)


def test_keys_of_blocks_do_not_depend_on_chunks(ops: HostOps) -> None:
    rng = np.random.default_rng(12)
    rows, norm = rng.standard_normal((30, SIZE), np.float32), rng.standard_normal(SIZE, np.float32)
    whole = None
    for chunk in (30, 1, 3, 7):
        state = ops.index_state(30, BLOCK, SIZE)
        for i in range(0, 30, chunk):
            step = rows[i : i + chunk]
            ops.index_blocks(step, norm, EPS, (FREQUENCIES, 1.0), i, state)
            # A chunk that failed before it was committed is computed again.
            ops.index_blocks(step, norm, EPS, (FREQUENCIES, 1.0), i, state)
            state.commit()
        whole = state.keys if whole is None else whole
        assert np.array_equal(state.keys, whole)
        assert np.array_equal(state.history.rows, rows[-3:])
    assert whole is not None
    for b in range(7):
        assert np.allclose(whole[b], block_key(rows.astype(np.float64), norm, b), atol=1e-5)


@pytest.mark.parametrize("name", ["F32", "F16", "Q8_0"])
def test_seeing_everything_is_plain_attention(ops: HostOps, name: str) -> None:
    ATTENTION[name].compile()
    rng = np.random.default_rng(13)
    q = rng.standard_normal((12, 4, 32), np.float32)
    k, v = (rng.standard_normal((12, 2, 32), np.float32) for _ in range(2))
    wanted = ops.attention(q, k, v, ops.kv_cache(name, 12, 2, 32), 0, 0.2)
    every = np.tile(np.arange(12, dtype=np.int32), (12, 1))
    cache = ops.kv_cache(name, 12, 2, 32)
    parts = [
        ops.attend_to(*(x[i : i + 5] for x in (q, k, v)), cache, i, 0.2, every[i : i + 5])
        for i in range(0, 12, 5)
    ]
    assert np.array_equal(np.concatenate(parts), wanted)


def test_what_is_not_visible_changes_no_bit(ops: HostOps) -> None:
    rng = np.random.default_rng(14)
    q = rng.standard_normal((1, 4, 32), np.float32)
    k, v = (rng.standard_normal((9, 2, 32), np.float32) for _ in range(2))
    visible = np.array([[1, 4, 8]], np.int32)
    outputs = []
    for hidden in (0.0, np.nan):
        k[[0, 2, 3, 5, 6, 7]] = v[[0, 2, 3, 5, 6, 7]] = hidden
        cache = ops.kv_cache("F32", 9, 2, 32)
        cache.store(0, k[:8], v[:8])
        outputs.append(ops.attend_to(q, k[8:], v[8:], cache, 8, 0.2, visible))
    assert np.array_equal(*outputs)
    kept = [1, 4, 8]
    for h in range(4):
        scores = k[kept, h // 2].astype(np.float64) @ q[0, h] * 0.2
        weights = np.exp(scores - scores.max())
        wanted = weights / weights.sum() @ v[kept, h // 2]
        assert np.allclose(outputs[0].reshape(4, 32)[h], wanted, atol=1e-5)
