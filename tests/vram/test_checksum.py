"""Guards against a checksum that lets a wrong byte through."""

import numpy as np
import pytest

from stratadesk.engine.vram.checksum import checksum

BLOCK = 512 * 128 * 8
SIZES = [0, 1, 7, 256, 4095, 4096, 4097, 9000]


def noise(n_bytes: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, n_bytes, dtype=np.uint8)


@pytest.mark.parametrize("n_bytes", SIZES)
def test_every_single_wrong_byte_changes_it(n_bytes: int) -> None:
    data = noise(n_bytes)
    right = checksum(data)
    for place in range(n_bytes):
        data[place] ^= 1 << place % 8
        assert checksum(data) != right, f"byte {place} of {n_bytes}"
        data[place] ^= 1 << place % 8
    assert checksum(data) == right


@pytest.mark.parametrize("n_bytes", [BLOCK - 8, BLOCK, 2 * BLOCK + 4096 + 5])
def test_a_wrong_byte_in_any_block_changes_it(n_bytes: int) -> None:
    data = noise(n_bytes)
    right = checksum(data)
    for place in {*range(0, n_bytes, n_bytes // 50), BLOCK - 9, n_bytes - 1}:
        data[place] += 1
        assert checksum(data) != right, f"byte {place} of {n_bytes}"
        data[place] -= 1


@pytest.mark.parametrize(("one", "other"), [(0, 8), (0, 4096), (8, 8192 + 16), (0, BLOCK)])
def test_words_that_changed_places_change_it(one: int, other: int) -> None:
    data = noise(2 * BLOCK)
    right = checksum(data)
    first, second = slice(one, one + 8), slice(other, other + 8)
    data[first], data[second] = data[second].copy(), data[first].copy()
    assert checksum(data) != right


def test_zeros_cut_off_change_it() -> None:
    assert checksum(np.zeros(8192, np.uint8)) != checksum(np.zeros(4096, np.uint8))


def test_bytes_may_begin_anywhere() -> None:
    data = noise(10_000)
    assert checksum(data[3:9000]) == checksum(data[3:9000].copy())
