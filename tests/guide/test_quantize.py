"""Guards against a guide that answers worse than it was trained: bits in the wrong place, a
scale search that finds worse scales than none, blocks that overflow or turn into NaN.

Read back by the `gguf` package's own dequantizers, which the goldens hold to llama.cpp's values.
"""

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType as Kind

from tools.guide.quantize import BLOCKS_AT_ONCE, quantize

KINDS = (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_XS)
LEVELS = {Kind.Q4_K: 15, Kind.Q5_K: 31, Kind.Q6_K: 63, Kind.IQ4_XS: 15}

Floats = npt.NDArray[np.float32]


def through(values: Floats, kind: Kind) -> Floats:
    read = gguf.quants.dequantize(quantize(values, kind), kind)
    return np.asarray(read, np.float32)


def rms_error(values: Floats, read: Floats) -> float:
    return float(np.sqrt(np.mean((values.astype(np.float64) - read) ** 2)))


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def rounded_simply(values: Floats, kind: Kind) -> Floats:
    """The plain way: even steps from the least of 32 values to the largest, exact scales."""
    x = values.reshape(-1, 32)
    low = x.min(axis=1, keepdims=True)
    step = (x.max(axis=1, keepdims=True) - low) / LEVELS[kind]
    return (np.rint((x - low) / step) * step + low).reshape(values.shape)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_errs_less_than_plain_rounding_with_scales_of_any_precision(kind: Kind) -> None:
    values = normal(64, 1024)
    error = rms_error(values, through(values, kind))
    plain = rms_error(values, rounded_simply(values, kind))
    assert error < plain  # measured ratios: 0.92 (Q4_K), 0.94 (Q5_K), 0.91 (Q6_K), 0.95 (IQ4_XS)


def largest_error(kind: Kind) -> float:
    """In units of the largest value: half a step, and what scales of few bits add."""
    return {Kind.Q4_K: 0.08, Kind.Q5_K: 0.05, Kind.Q6_K: 0.02, Kind.IQ4_XS: 0.095}[kind]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [0.02, 1.0, 300.0])
def test_no_value_errs_by_more_than_a_step(kind: Kind, size: float) -> None:
    values = normal(32, 512, seed=3) * np.float32(size)
    error = np.abs(values - through(values, kind)).reshape(-1, 256).max(axis=1)
    assert (error <= largest_error(kind) * np.abs(values).reshape(-1, 256).max(axis=1)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_value_of_a_block_comes_back_in_its_own_place(kind: Kind) -> None:
    """One peak in each place: a swapped nibble or high bit shows it somewhere else."""
    values = np.eye(256, dtype=np.float32) - 0.5
    read = through(values, kind)
    assert (read.argmax(axis=1) == np.arange(256)).all()
    assert np.abs(read - values).max() < 0.05


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_sub_blocks_keep_scales_of_their_own(kind: Kind) -> None:
    rows = normal(16, 8, 32, seed=5) * np.array([1, 2, 4, 8, 8, 4, 2, 1], np.float32)[:, None]
    values = rows.reshape(16, 256)
    error = (values - through(values, kind)).reshape(16, 8, 32)
    spread = np.sqrt((error**2).mean(axis=(0, 2))) / np.sqrt((rows**2).mean(axis=(0, 2)))
    assert (spread < {Kind.Q4_K: 0.11, Kind.Q5_K: 0.06, Kind.Q6_K: 0.04}.get(kind, 0.12)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("sign", [1, -1])
def test_values_of_one_sign(kind: Kind, sign: int) -> None:
    values = sign * (np.abs(normal(8, 256, seed=8)) + 1)
    assert rms_error(values, through(values, kind)) < 0.12


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_zeros_stay_zeros_beside_other_blocks(kind: Kind) -> None:
    values = normal(3, 512)
    values[1] = 0
    values[2, 32:64] = 0
    read = through(values, kind)
    assert not read[1].any()
    assert np.abs(read[2, 32:64]).max() < 1e-6
    assert read[0].any()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 3e38])
def test_values_beyond_half_precision_stay_finite(kind: Kind, size: float) -> None:
    values = np.clip(normal(4, 256), -1, 1) * np.float32(size)
    read = through(values, kind)
    assert np.isfinite(read).all()
    if size > 1:
        largest = np.abs(values).argmax(axis=1)
        rows = np.arange(4)
        assert (np.sign(read[rows, largest]) == np.sign(values[rows, largest])).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_blocks_do_not_depend_on_their_neighbours(kind: Kind) -> None:
    values = normal(BLOCKS_AT_ONCE + 3, 256, seed=9)
    whole = quantize(values, kind)
    assert (whole[-4:] == quantize(values[-4:], kind)).all()
    assert (whole.reshape(-1) == quantize(values.reshape(1, -1), kind).reshape(-1)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_refuses_what_it_cannot_encode(kind: Kind) -> None:
    with pytest.raises(ValueError, match="255 values are no multiple of 256"):
        quantize(np.zeros((2, 255), np.float32), kind)
    with pytest.raises(ValueError, match="finite"):
        quantize(np.full((1, 256), np.nan, np.float32), kind)
