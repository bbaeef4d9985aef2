"""Guards against a format that is not decoded bit for bit as the reference does."""

from pathlib import Path

import numpy as np
import pytest

from stratadesk.kernels.cuda import programs
from tests.gpu.bench import Bench


@pytest.mark.parametrize("name", programs.FORMATS)
def test_values_are_those_of_the_reference(name: str, golden_dir: Path, bench: Bench) -> None:
    golden = np.load(golden_dir / "dequant.npz")
    raw, wanted = golden[f"{name}_raw"], golden[f"{name}_float32"]
    weight = bench.weight(raw.view(np.uint8), name, wanted.shape)
    ids = bench.tensor(np.arange(len(wanted), dtype=np.int32))
    decoded = bench.ops.download(bench.ops.decode_rows(weight, ids))
    assert np.array_equal(decoded.view(np.int32), wanted.view(np.int32))


@pytest.mark.parametrize("name", programs.FORMATS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 8])
def test_products_are_those_of_the_values(
    name: str, tokens: int, golden_dir: Path, bench: Bench
) -> None:
    """Against float64; a token's result has the same bits alone and in a window.

    Activations in fixed point are as exact as float32 beside the largest of 32.
    """
    golden = np.load(golden_dir / "dequant.npz")
    raw, values = golden[f"{name}_raw"].view(np.uint8), golden[f"{name}_float32"]
    rng = np.random.default_rng(tokens)
    chosen = rng.integers(1, len(values), (37, 4))
    matrix = values[chosen].reshape(37, -1)
    weight = bench.weight(raw[chosen].reshape(37, -1), name, matrix.shape)
    x = rng.standard_normal((tokens, matrix.shape[1]), np.float32)
    result = bench.ops.download(bench.ops.linear(weight, bench.tensor(x)))
    wanted = x.astype(np.float64) @ matrix.T.astype(np.float64)
    weights = np.abs(matrix.T.astype(np.float64))
    allowed = 1e-6 * (np.abs(x.astype(np.float64)) @ weights)
    if name not in programs.FLOATS:
        largest = np.abs(x.reshape(tokens, -1, 32)).max(axis=2).astype(np.float64)
        allowed += 1e-7 * (np.repeat(largest, 32, axis=1) @ weights)
    assert (np.abs(result - wanted) <= allowed).all()
    for token in range(tokens):
        alone = bench.ops.download(bench.ops.linear(weight, bench.tensor(x[token : token + 1])))
        assert np.array_equal(alone[0], result[token])
