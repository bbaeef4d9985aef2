"""The matrix product of every format: weights decoded once per chunk, summed row by row.

`matmul` is a template over `decode` and `UNIT` (see `kernel.specialise`). It multiplies with
several matrices of `rows` rows at once, each given by the address of its first storage unit: the
experts of a layer wherever they lie, or the one matrix of a dense weight. `starts` delimits which
of the `order` entries go through each matrix. An entry s reads row `s // share` of x and writes
row s of y, from `column` on.

A tile is 4 weight rows by 1,024 columns in float32; each block is decoded into it once and used
for all entries of its matrix. The sum for one output value runs over columns in an order that
depends on neither the number of entries nor the number of threads.
"""

import numpy as np
from numba import carray, njit, prange

from stratadesk.kernels.host.bits import pointer_to
from stratadesk.kernels.host.kernel import SUM_MATH

TILE_ROWS = 4
TILE_COLUMNS = 1024

# Stands for a format's storage unit in the template below.
UNIT = np.uint8

MATMUL_SIGNATURE = (
    "void(int64[::1], int64, int64, int64, float32[:, ::1], int64, int32[::1], int32[::1],"
    " float32[:, ::1], int64)"
)
ROWS_SIGNATURE = "void(Array({unit}, 1, 'C', readonly=True), int64, int32[::1], float32[:, ::1])"


@njit
def decode(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Stand for a format's decoder in the templates below."""


@njit(fastmath=SUM_MATH)
def _add_dots(tile: np.ndarray, x: np.ndarray, sums: np.ndarray) -> None:
    """Add the dot products of the four tile rows with x to `sums`."""
    a = b = c = d = np.float32(0)
    row_a, row_b, row_c, row_d = tile[0], tile[1], tile[2], tile[3]
    for k in range(x.size):
        value = x[k]
        a += row_a[k] * value
        b += row_b[k] * value
        c += row_c[k] * value
        d += row_d[k] * value
    sums[0] += a
    sums[1] += b
    sums[2] += c
    sums[3] += d


def matmul(
    addresses: np.ndarray,
    row_units: int,
    tile_units: int,
    rows: int,
    x: np.ndarray,
    share: int,
    order: np.ndarray,
    starts: np.ndarray,
    y: np.ndarray,
    column: int,
) -> None:
    """Compute y[s, column + r] = W[r] · x[s // share] for all entries s of each matrix W."""
    columns = x.shape[1]
    tiles = (rows + TILE_ROWS - 1) // TILE_ROWS
    for item in prange(addresses.size * tiles):
        matrix = item // tiles
        first_row = (item % tiles) * TILE_ROWS
        begin, end = starts[matrix], starts[matrix + 1]
        data = carray(pointer_to(addresses[matrix]), (rows * row_units,), UNIT)
        tile = np.empty((TILE_ROWS, TILE_COLUMNS), np.float32)
        sums = np.zeros((end - begin, TILE_ROWS), np.float32)
        for panel in range(0, columns, TILE_COLUMNS):
            width = min(TILE_COLUMNS, columns - panel)
            for r in range(TILE_ROWS):
                # Beyond the last row the last one is decoded again and its sums are dropped.
                row = min(first_row + r, rows - 1)
                start = row * row_units + (panel // TILE_COLUMNS) * tile_units
                decode(data, start, width, tile[r])
            for i in range(begin, end):
                _add_dots(tile, x[order[i] // share, panel : panel + width], sums[i - begin])
        for i in range(begin, end):
            for r in range(min(TILE_ROWS, rows - first_row)):
                y[order[i], column + first_row + r] = sums[i - begin, r]


def matmul_work(
    addresses: np.ndarray,
    row_units: int,
    tile_units: int,
    rows: int,
    x: np.ndarray,
    share: int,
    order: np.ndarray,
    *_: object,
) -> int:
    """Weights of the matrices, or those that all entries meet if that is more."""
    columns: int = x.shape[1]
    return rows * columns * max(addresses.size, order.size)


def rows(data: np.ndarray, row_units: int, indices: np.ndarray, out: np.ndarray) -> None:
    """Decode the rows `indices` of one matrix to `out` [len(indices), columns].

    On one thread: rows are few, and a parallel kernel takes five times as long to compile.
    """
    for i in range(indices.size):
        decode(data, np.int64(indices[i]) * row_units, out.shape[1], out[i])
