"""Guards against an absorbed form that is not the attention it stands for.

The reference decompresses keys and values of every head, as the model is defined; the engine
never does.
"""

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.errors import UsageError
from stratadesk.kernels.host.backend import HostOps
from stratadesk.kernels.host.heads import HostHeadRows
from stratadesk.kernels.host.warm_up import warm_up
from stratadesk.kernels.host.weights import HostWeight

TOKENS, HEADS, PLAIN, ROTATED, LATENT, VALUE = 13, 6, 24, 8, 56, 20
ROW = LATENT + ROTATED
SCALE = 0.2

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def ops() -> HostOps:
    for kv_format in ("F32", "F16", "Q8_0"):
        warm_up({"F32"}, kv_format, lambda done, total: None, ["latent_attention"])
    return HostOps()


class Problem:
    """Random queries and rows, already rotated, and the matrices of every head."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.q = rng.standard_normal((TOKENS, HEADS, PLAIN + ROTATED), np.float32)
        self.rows = rng.standard_normal((TOKENS, ROW), np.float32)
        self.keys = rng.standard_normal((HEADS, PLAIN, LATENT), np.float32) / 7
        self.values = rng.standard_normal((HEADS, VALUE, LATENT), np.float32) / 7

    def split(self, ops: HostOps) -> tuple[HostHeadRows, HostHeadRows]:
        """`attn_k_b` and `attn_v_b`."""
        keys, values = weight(self.keys.transpose(0, 2, 1)), weight(self.values)
        return ops.head_rows(keys, HEADS, 0, LATENT), ops.head_rows(values, HEADS, 0, VALUE)

    def joined(self, ops: HostOps) -> tuple[HostHeadRows, HostHeadRows]:
        """The same as one `attn_kv_b`."""
        both = np.concatenate([self.keys, self.values], axis=1).reshape(-1, LATENT)
        found = weight(both)
        keys = ops.head_rows(found, HEADS, 0, PLAIN, transposed=True)
        return keys, ops.head_rows(found, HEADS, PLAIN, VALUE)

    def reference(self) -> npt.NDArray[np.float64]:
        """Attention per head over decompressed keys and values, [T, H · v], float64."""
        latent, rotated = np.split(self.rows.astype(np.float64), [LATENT], axis=1)
        out = np.zeros((TOKENS, HEADS, VALUE))
        for h in range(HEADS):
            k = np.concatenate([latent @ self.keys[h].T, rotated], axis=1)
            v = latent @ self.values[h].T
            for t in range(TOKENS):
                scores = k[: t + 1] @ self.q[t, h] * SCALE
                weights = np.exp(scores - scores.max())
                out[t, h] = weights / weights.sum() @ v[: t + 1]
        return out.reshape(TOKENS, -1)

    def run(
        self, ops: HostOps, parts: tuple[HostHeadRows, HostHeadRows], chunk: int, kv: str = "F32"
    ) -> Floats:
        keys, values = parts
        cache = ops.latent_cache(kv, TOKENS, ROW, LATENT)
        outputs = []
        for i in range(0, TOKENS, chunk):
            cut = slice(i, i + chunk)
            absorbed = ops.absorbed_query(self.q[cut], keys, LATENT)
            o = ops.latent_attention(absorbed, self.rows[cut], cache, i, SCALE)
            outputs.append(ops.per_head(values, o))
        return np.concatenate(outputs)


def weight(values: Floats) -> HostWeight:
    data = np.ascontiguousarray(values)
    return HostWeight.wrap(data.reshape(-1).view(np.uint8), "F32", data.shape)


@pytest.mark.parametrize(("kv", "allowed"), [("F32", 1e-5), ("F16", 2e-3), ("Q8_0", 3e-2)])
def test_both_stored_forms_are_the_attention_they_stand_for(
    ops: HostOps, kv: str, allowed: float
) -> None:
    problem = Problem()
    wanted = problem.reference()
    for parts in (problem.split(ops), problem.joined(ops)):
        whole = problem.run(ops, parts, TOKENS, kv)
        assert np.abs(whole - wanted).max() < allowed
        for chunk in (1, 5):
            assert np.array_equal(problem.run(ops, parts, chunk, kv), whole)


def test_a_head_of_one_part_reads_no_row_of_the_other(ops: HostOps) -> None:
    problem = Problem()
    keys, values = problem.joined(ops)
    right = problem.run(ops, (keys, values), TOKENS)
    problem.values[:] = np.nan
    keys, _ = problem.joined(ops)
    assert np.array_equal(problem.run(ops, (keys, values), TOKENS), right)


def test_neighbours_turn_from_the_first_value_on(ops: HostOps) -> None:
    rng = np.random.default_rng(9)
    frequencies = np.array([1.0, 0.3, 0.01])
    x = rng.standard_normal((4, 2, 10), np.float32)
    turned = x.copy()
    ops.rotate_neighbours(turned, ops.rope_table(5, 4, frequencies, 1.5), 3)
    assert np.array_equal(turned[..., :3], x[..., :3])
    assert np.array_equal(turned[..., 9:], x[..., 9:])
    for t in range(4):
        as_complex = x[t, :, 3:9:2].astype(complex) + 1j * x[t, :, 4:9:2]
        wanted = as_complex * 1.5 * np.exp(1j * (5 + t) * frequencies)
        assert np.allclose(turned[t, :, 3:9:2], wanted.real, atol=1e-5)
        assert np.allclose(turned[t, :, 4:9:2], wanted.imag, atol=1e-5)


def test_only_the_latent_part_is_normed(ops: HostOps) -> None:
    rng = np.random.default_rng(10)
    x, norm = rng.standard_normal((5, ROW), np.float32), rng.standard_normal(LATENT, np.float32)
    normed = x.copy()
    ops.norm_prefix(normed, norm, 1e-6)
    wide = x[:, :LATENT].astype(np.float64)
    wanted = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + 1e-6) * norm
    assert np.allclose(normed[:, :LATENT], wanted, atol=1e-5)
    assert np.array_equal(normed[:, LATENT:], x[:, LATENT:])


def test_rows_that_are_no_whole_blocks_are_refused_in_a_sentence(ops: HostOps) -> None:
    with pytest.raises(UsageError, match="blocks of 32 values, this model's rows have 80"):
        ops.latent_cache("Q8_0", 8, 80, 64)
    with pytest.raises(UsageError, match="Q8_0 needs rows of whole blocks"):
        ops.kv_cache("Q8_0", 8, 2, 48)
    assert ops.latent_cache("F16", 8, 80, 64).n_bytes == 8 * 80 * 2
