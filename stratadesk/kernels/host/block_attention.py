"""Block-sparse attention: an indexer's keys score blocks of tokens, queries see the best ones.

`attend_to` is a template over `decode` (see `kernel.specialise`), like `attention`. Formulas:
`stratadesk/engine/architectures/block_attention.py`.
"""

import math
from collections.abc import Iterator

import numpy as np
from numba import njit, prange

from stratadesk.kernels.host.decode_plain import decode_f16, decode_f32, decode_q8_0
from stratadesk.kernels.host.elementwise import sum_of_squares
from stratadesk.kernels.host.kernel import Kernel, kernel, specialise
from stratadesk.kernels.host.sums import add_scaled, dot, softmax_weights

_SIGNATURE = (
    "void(float32[:, :, ::1], {unit}[::1], {unit}[::1], int64, int64, int64, float32,"
    " int32[:, ::1], float32[:, :, ::1])"
)


@njit
def decode(data: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """Stand for the cache format's decoder in the template below."""


@njit
def _add(out: np.ndarray, x: np.ndarray) -> None:
    for i in range(out.size):
        out[i] += x[i]


@njit
def _norm_and_rotate(
    x: np.ndarray,
    weight: np.ndarray,
    eps: float,
    position: int,
    frequencies: np.ndarray,
    magnitude: float,
) -> None:
    """RMS norm and NEOX rotation of one vector, in place."""
    factor = np.float32(1) / np.sqrt(sum_of_squares(x) / np.float32(x.size) + eps)
    for i in range(x.size):
        x[i] = x[i] * factor * weight[i]
    pairs = frequencies.size
    for i in range(pairs):
        angle = np.float64(position) * frequencies[i]
        cos = np.float32(math.cos(angle)) * magnitude
        sin = np.float32(math.sin(angle)) * magnitude
        a, b = x[i], x[i + pairs]
        x[i] = a * cos - b * sin
        x[i + pairs] = a * sin + b * cos


@kernel(
    "void(float32[:, ::1], float32[:, ::1], int64, int64, float32[::1], float32, float64[::1],"
    " float32, float32[:, ::1])",
    parallel=False,
)
def block_keys(
    history: np.ndarray,
    rows: np.ndarray,
    start: int,
    block: int,
    weight: np.ndarray,
    eps: float,
    frequencies: np.ndarray,
    magnitude: float,
    keys: np.ndarray,
) -> None:
    """keys[b] = rope(rms(mean of block b's rows), position b · block) for each block completed.

    `rows` [T, d] belong to the tokens from `start` on, `history` [block - 1, d] to those before,
    oldest first; blocks completed by earlier chunks stay as they are.
    """
    past = history.shape[0]
    for b in range(start // block, (start + rows.shape[0]) // block):
        key = keys[b]
        key[:] = 0
        for position in range(b * block, (b + 1) * block):
            row = position - start
            _add(key, rows[row] if row >= 0 else history[past + row])
        for i in range(key.size):
            key[i] /= np.float32(block)
        _norm_and_rotate(key, weight, eps, b * block, frequencies, magnitude)


@njit
def _block_scores(queries: np.ndarray, keys: np.ndarray, scores: np.ndarray) -> None:
    """scores[b] = Σ_heads max(0, q·key_b); never NaN, whatever the operands."""
    for b in range(scores.size):
        total = np.float32(0)
        for h in range(queries.shape[0]):
            score = dot(queries[h], keys[b])
            if score > 0:
                total += score
        scores[b] = total


@njit
def _choose_blocks(scores: np.ndarray, whole: int, rest: int, block: int, take: np.ndarray) -> None:
    """How many tokens of each block are seen: all of the `whole` best, `rest` of the next.

    Of blocks with equal scores the earlier come first. There are more than `whole` blocks, so
    many that `rest` fits the next one.
    """
    ordered = np.sort(scores)
    last = ordered[scores.size - whole] if whole else np.float32(np.inf)
    following = ordered[scores.size - whole - 1]
    above = 0
    for b in range(scores.size):
        above += scores[b] > last
    equal = whole - above
    for b in range(scores.size):
        take[b] = 0
        if scores[b] > last or (scores[b] == last and equal > 0):
            take[b] = block
            equal -= scores[b] == last
        elif scores[b] == following and rest > 0:
            take[b] = rest
            rest = 0


@kernel("void(float32[:, :, ::1], float32[:, ::1], int64, int64, int64, int32[:, ::1])")
def select_keys(
    queries: np.ndarray, keys: np.ndarray, start: int, block: int, budget: int, out: np.ndarray
) -> None:
    """Positions each token attends to, rising; out [T, budget], min(budget, seen) of a row set.

    A token at p always sees those of the block it is in or begins, then whole blocks before by
    score (`queries` [T, heads, d] against `keys`), then the first tokens of one more block, until
    `budget` tokens are seen.
    """
    for t in prange(queries.shape[0]):
        seen = start + t + 1
        blocks = seen // block
        left = budget - seen % block
        count = 0
        if blocks * block <= left:
            for position in range(seen):
                out[t, position] = position
        else:
            scores = np.empty(blocks, np.float32)
            take = np.empty(blocks, np.int64)
            _block_scores(queries[t], keys, scores)
            _choose_blocks(scores, left // block, left % block, block, take)
            for b in range(blocks):
                for i in range(take[b]):
                    out[t, count] = b * block + i
                    count += 1
            for position in range(blocks * block, seen):
                out[t, count] = position
                count += 1


def attend_to(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    row_units: int,
    kv_heads: int,
    start: int,
    scale: float,
    visible: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[t, h] = softmax(scale · q[t, h]·K) V over the tokens visible[t] [T, budget].

    As `attention`; of a row of `visible` the first min(budget, start + t + 1) count.
    """
    tokens, heads, size = q.shape
    share = heads // kv_heads
    for item in prange(tokens * kv_heads):
        t, kv_head = item // kv_heads, item % kv_heads
        seen = min(visible.shape[1], start + t + 1)
        row = np.empty(size, np.float32)
        scores = np.empty((share, seen), np.float32)
        first = kv_head * share
        for j in range(seen):
            at = (np.int64(visible[t, j]) * kv_heads + kv_head) * row_units
            decode(keys, at, size, row)
            for h in range(share):
                scores[h, j] = dot(q[t, first + h], row) * scale
        for h in range(share):
            softmax_weights(scores[h])
            out[t, first + h, :] = 0
        for j in range(seen):
            at = (np.int64(visible[t, j]) * kv_heads + kv_head) * row_units
            decode(values, at, size, row)
            for h in range(share):
                add_scaled(out[t, first + h], row, scores[h, j])


ATTEND_TO = {
    "F32": specialise(attend_to, _SIGNATURE.format(unit="float32"), decode_f32),
    "F16": specialise(attend_to, _SIGNATURE.format(unit="uint16"), decode_f16),
    "Q8_0": specialise(attend_to, _SIGNATURE.format(unit="uint8"), decode_q8_0),
}
"""The attention kernel for each format of the cache."""


def kernels_for(formats: set[str], kv_format: str) -> Iterator[Kernel]:
    """The kernels of this module that depend on formats."""
    yield ATTEND_TO[kv_format]
