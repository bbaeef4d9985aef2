"""Guards against vector code that is right for one count, sign or type and wrong for others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit
from numba.core.errors import TypingError

from stratadesk.kernels.host.lane_tables import bit_lanes, grid_lanes, negate_where, pick
from stratadesk.kernels.host.lanes import floats, join, lanes_at, signed_floats, store

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

BYTES = np.random.default_rng(9).integers(0, 256, 70, np.uint8)
AT = 3
"""Lanes are read from an odd address."""


def run(function: Callable[..., None], count: int, *others: Any) -> Floats:
    out = np.full(count + 2, np.nan, np.float32)
    njit(function)(BYTES, out, *others)
    assert np.isnan(out[[0, -1]]).all()
    return out[1:-1]


def test_bytes_become_signed_and_unsigned_floats() -> None:
    def unsigned(data: Bytes, out: Floats) -> None:
        store(out, 1, floats(lanes_at(data, AT, 32)))

    def signed(data: Bytes, out: Floats) -> None:
        store(out, 1, signed_floats(lanes_at(data, AT, 16)))

    assert run(unsigned, 32).tolist() == BYTES[AT : AT + 32].tolist()
    assert run(signed, 16).tolist() == BYTES[AT : AT + 16].view(np.int8).tolist()


def test_bytes_wrap_around_and_mix_with_numbers() -> None:
    def mixed(data: Bytes, out: Floats, shift: int) -> None:
        quants = lanes_at(data, AT, 16)
        store(out, 1, signed_floats(((quants >> shift) & 7 | (quants << 3)) - 32))

    b = BYTES[AT : AT + 16]
    wanted = (((b >> 2) & 7) | (b << 3)) - np.uint8(32)
    assert run(mixed, 16, 2).tolist() == wanted.view(np.int8).tolist()


def test_floats_are_rounded_after_every_operation() -> None:
    def scaled(data: Bytes, out: Floats, factor: np.float32, offset: np.float32) -> None:
        store(out, 1, floats(lanes_at(data, AT, 16)) * factor - offset)

    factor, offset = np.float32(0.1), np.float32(0.7)
    wanted = BYTES[AT : AT + 16].astype(np.float32) * factor - offset
    assert run(scaled, 16, factor, offset).tolist() == wanted.tolist()


def test_lanes_are_joined_in_order() -> None:
    def joined(data: Bytes, out: Floats) -> None:
        store(out, 1, floats(join(lanes_at(data, AT, 16), lanes_at(data, AT + 20, 16))))

    wanted = [*BYTES[AT : AT + 16], *BYTES[AT + 20 : AT + 36]]
    assert run(joined, 32).tolist() == wanted


def test_nibbles_are_looked_up() -> None:
    table = np.random.default_rng(10).permutation(256)[:16].astype(np.uint8)

    def looked_up(data: Bytes, out: Floats, table: Bytes) -> None:
        store(out, 1, floats(pick(table, lanes_at(data, AT, 16) >> 4)))

    assert run(looked_up, 16, table).tolist() == table[BYTES[AT : AT + 16] >> 4].tolist()


@pytest.mark.parametrize("word", [np.uint32, np.uint64])
def test_grid_entries_lie_side_by_side(word: type[np.unsignedinteger[Any]]) -> None:
    grid = np.arange(256, dtype=np.uint8).view(word)
    entry = np.dtype(word).itemsize
    last = np.uint8(256 // entry - 1)

    def entries(data: Bytes, out: Floats, grid: npt.NDArray[Any], last: int) -> None:
        store(out, 1, floats(grid_lanes(grid, (last, 0))))

    wanted = [*range(256 - entry, 256), *range(entry)]
    assert run(entries, 2 * entry, grid, last).tolist() == wanted


def test_bits_spread_and_negate_from_the_lowest_on() -> None:
    word = 0b1010_0000_0000_1101

    def spread(data: Bytes, out: Floats, word: int) -> None:
        store(out, 1, floats(bit_lanes(word, 16)))

    def negated(data: Bytes, out: Floats, word: int) -> None:
        store(out, 1, signed_floats(negate_where(lanes_at(data, AT, 16) & 63, word)))

    bits = [(word >> i) & 1 for i in range(16)]
    assert run(spread, 16, word).tolist() == bits
    magnitudes = (BYTES[AT : AT + 16] & 63).astype(int)
    assert run(negated, 16, word).tolist() == np.where(bits, -magnitudes, magnitudes).tolist()


def test_lanes_of_different_counts_or_kinds_do_not_mix() -> None:
    def counts(data: Bytes, out: Floats) -> None:
        store(out, 1, floats(lanes_at(data, 0, 16) + lanes_at(data, 0, 32)))

    def kinds(data: Bytes, out: Floats) -> None:
        store(out, 1, floats(lanes_at(data, 0, 16)) * 0.5)

    for wrong in (counts, kinds):
        with pytest.raises(TypingError):
            run(wrong, 16)
