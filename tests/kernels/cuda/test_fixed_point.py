"""Guards against a layout of activations whose loads ask one bank of a cache for two lines at once.

Eight lanes of a warp are served at a time when each loads 16 bytes, sixteen when each loads 8.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.tensors import fixed_row_bytes
from tests.kernels.cuda.emulation.bench import EmulatedBench
from tests.kernels.cuda.emulation.kernels import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

COLUMNS, WARP, LINE = 1_024, 32, 128


@dataclass(frozen=True)
class Reading:
    """How lanes read activations: `at` names the first value of a lane's load `k`.

    That is `at` of formats.cuh; a load takes `run` values, `most` lines at most in each bank.
    """

    run: int
    loads: int
    at: Callable[[int, int], int]
    most: int = 1


READINGS = {
    "Nibbles32, Strips256": Reading(16, 2, lambda lane, k: 32 * lane + 16 * k),
    "Q8_0": Reading(16, 1, lambda lane, k: 16 * lane),
    "Nibbles256": Reading(16, 2, lambda lane, k: 64 * (lane // 2) + 16 * (lane % 2) + 32 * k),
    "Q6_K": Reading(16, 2, lambda lane, k: 128 * (lane // 4) + 16 * (lane % 4) + 64 * k),
    "Pairs256": Reading(8, 4, lambda lane, k: 128 * (lane // 4) + 8 * (lane % 4) + 32 * k, most=2),
}


@pytest.fixture(scope="module")
def places() -> npt.NDArray[np.int64]:
    """Where the high byte of each value lies, told by rows with one value that is not 0."""
    bench = EmulatedBench()
    x = bench.tensor(np.eye(COLUMNS, dtype=np.float32))
    fixed = bench.ops.resident.tensor(COLUMNS, fixed_row_bytes(COLUMNS) // 4)
    bench.ops._each(programs.VECTORS, "fix", x.size, x, fixed, COLUMNS)
    rows, found = np.nonzero(bench.ops.download(fixed).view(np.uint8) == 127)
    assert np.array_equal(rows, np.arange(COLUMNS))
    return found


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_lanes_served_at_once_share_no_bank(
    reading: Reading, places: npt.NDArray[np.int64]
) -> None:
    for k in range(reading.loads):
        first = np.array([reading.at(lane, k) % COLUMNS for lane in range(WARP)])
        runs = places[first[:, None] + np.arange(reading.run)]
        assert (runs == runs[:, :1] + np.arange(reading.run)).all()
        assert (runs[:, 0] % reading.run == 0).all()
        together = runs[:, 0].reshape(-1, LINE // reading.run)
        for group in together:
            lines = [len(set(group[group % LINE == bank])) for bank in set(group % LINE)]
            assert max(lines) <= reading.most


@pytest.mark.parametrize("columns", [32, 96, 256, 1_024, 1_056])
def test_a_row_has_room_for_its_values(columns: int) -> None:
    """Rows written side by side do not reach into each other: what products read is unchanged."""
    bench = EmulatedBench()
    x = np.random.default_rng(columns).standard_normal((3, columns), np.float32)
    place = bench.tensor(x)
    written = []
    for chosen in (range(3), reversed(range(3))):
        fixed = bench.ops.resident.tensor(3, fixed_row_bytes(columns) // 4)
        for row in chosen:
            target = fixed.row(row).address
            bench.ops._each(programs.VECTORS, "fix", columns, place.row(row), target, columns)
        written.append(bench.ops.download(fixed).view(np.uint8))
    assert np.array_equal(*written)
