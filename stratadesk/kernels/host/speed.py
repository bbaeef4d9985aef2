"""How fast the matrix product of each format is, and how fast this machine copies memory.

What is measured is one token: a matrix of 2,048 x 4,096 weights times a vector, sums in float32.
Other programs can only make a run slower, so the fastest of many runs counts, and runs on one
thread and on all of them take turns. One matrix used again and again may stay in the processor's
cache; a model's weights come from memory, which enough matrices in turn show.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle

import numba
import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.formats import FORMATS, HostFormat
from stratadesk.kernels.host.weights import HostWeight, multiply

ROWS, COLUMNS = 2048, 4096
COPIED_BYTES = 256 * 1024 * 1024
"""Large enough to come from memory and not from a cache."""

_DRAWN_VALUES = 1 << 20
_LARGEST_VALUE = 1e4
_FEWEST_RUNS = 3


@dataclass(frozen=True, slots=True)
class Speed:
    """The fastest times in seconds, on one thread and on all, and the bytes read or copied.

    `weights` is 0 for a copy, whose bytes are counted once though each is read and written.
    """

    name: str
    weights: int
    n_bytes: int
    one_thread: float
    all_threads: float


def fastest(
    works: Sequence[Callable[[], None]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Run `works` in turns for `seconds`, at least three times; the shortest time of each."""
    best = [float("inf")] * len(works)
    end = clock() + seconds
    runs = 0
    while runs < _FEWEST_RUNS or clock() < end:
        for index, work in enumerate(works):
            started = clock()
            work()
            best[index] = min(best[index], clock() - started)
        runs += 1
    return best


def copy_speed(seconds: float, n_bytes: int = COPIED_BYTES) -> Speed:
    """Measure copying `n_bytes` from one array to another, on one thread and on all."""
    threads = numba.get_num_threads()
    source, target = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    targets, sources = np.array_split(target, threads), np.array_split(source, threads)

    def copy_parts() -> None:
        for _ in pool.map(np.copyto, targets, sources):
            pass

    with ThreadPoolExecutor(threads) as pool:
        times = fastest([lambda: np.copyto(target, source), copy_parts], seconds)
    return Speed("copy", 0, n_bytes, *times)


def format_speeds(
    names: Sequence[str], seconds: float, *, from_memory: bool = False
) -> Iterator[Speed]:
    """Measure the formats `names`, each for `seconds`; kernels are compiled before.

    `from_memory`: every run takes the next of as many matrices as make up `COPIED_BYTES`.
    """
    threads = numba.get_num_threads()
    for name in names:
        item = FORMATS[name]
        item.rows.compile()
        item.matmul.compile()
        n_bytes = ROWS * item.units(COLUMNS) * np.dtype(item.unit).itemsize
        product = _product(item, -(-COPIED_BYTES // n_bytes) if from_memory else 1)
        try:
            times = fastest([_on_threads(product, count) for count in (1, threads)], seconds)
        finally:
            numba.set_num_threads(threads)
        yield Speed(name, ROWS * COLUMNS, n_bytes, *times)


def random_blocks(item: HostFormat, count: int) -> npt.NDArray[np.uint8]:
    """Draw `count` blocks of random bits that decode to ordinary values, uint8 [count, bytes].

    Raw random scales would be infinite or subnormal now and then, which costs other time.
    """
    unit, drawn_blocks = np.dtype(item.unit), _DRAWN_VALUES // item.block_values
    shape = (drawn_blocks, item.block_units * unit.itemsize)
    drawn = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    values = np.empty((drawn_blocks, item.block_values), np.float32)
    data = drawn.reshape(-1).view(unit)
    data.flags.writeable = False
    item.rows(data, item.block_units, np.arange(drawn_blocks, dtype=np.int32), values)
    largest = np.abs(values).max(axis=1)
    kept = drawn[(largest > 1 / _LARGEST_VALUE) & (largest < _LARGEST_VALUE)]
    blocks: npt.NDArray[np.uint8] = kept[np.arange(count) % len(kept)]
    return blocks


def _product(item: HostFormat, matrices: int) -> Callable[[], None]:
    """One run of the product, each time with the next of `matrices` of this format."""
    blocks = random_blocks(item, ROWS * COLUMNS // item.block_values).reshape(-1)
    copies = [blocks, *(blocks.copy() for _ in range(matrices - 1))]
    weights = [HostWeight.wrap(data, item.name, (ROWS, COLUMNS)) for data in copies]
    x = np.random.default_rng(1).standard_normal((1, COLUMNS), np.float32)
    out = np.empty((1, ROWS), np.float32)
    first = np.zeros(1, np.int32)
    sorted_by = (first, np.array([0, 1], np.int32))
    turns = cycle([(weight, weight.addresses(first)) for weight in weights])
    return lambda: multiply(*next(turns), x, 1, sorted_by, out, 0)


def _on_threads(work: Callable[[], None], threads: int) -> Callable[[], None]:
    def run() -> None:
        numba.set_num_threads(threads)
        work()

    return run
