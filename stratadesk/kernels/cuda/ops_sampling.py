"""The CUDA operation that draws a token from logits; see src/sampling.cu for how."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import WARP, OpsBase, blocks
from stratadesk.kernels.cuda.tensors import DeviceTensor

BUCKETS = MOST_CANDIDATES = 2_048
"""Steps in which logits are counted, and logits that are sorted at most."""

NOT_FINITE, TOO_MANY_ALIKE = -1, -2
"""What stands for a token where none could be drawn."""

_THREADS, _MOST_BLOCKS, _DRAW_THREADS = 256, 128, 512


WISHES_BYTES, TURN_BYTES, MOST_ENDS, RING = 32, 256, 60, 16


def wishes_of(temperature: float, top_k: int, top_p: float, min_p: float) -> npt.NDArray[np.uint8]:
    """How to draw, as the kernels read it; temperature 0 takes the best.

    `top_k` is 1 to 2,048 and less than the vocabulary.
    """
    wishes = np.zeros(1, "f8, f8, f8, i4, i4")
    log_min_p = math.log(min_p) if min_p > 0 else -math.inf
    wishes[0] = (temperature, top_p, log_min_p, top_k, 0)
    return wishes.view(np.uint8)


def turn_of(end_ids: Collection[int]) -> npt.NDArray[np.int32]:
    """A turn that has just begun, as the kernels read it. Raises ValueError for over 60 end ids."""
    if len(end_ids) > MOST_ENDS:
        raise ValueError(f"{len(end_ids)} end tokens, {MOST_ENDS} at most")
    turn = np.zeros(TURN_BYTES // 4, np.int32)
    turn[2], turn[4 : 4 + len(end_ids)] = len(end_ids), sorted(end_ids)
    return turn


@dataclass(frozen=True, slots=True)
class DrawPlaces:
    """Addresses that draws use.

    `wishes` and `turn` hold what `wishes_of` and `turn_of` give; `draw` is what the kernels tell
    each other. `shares` (float64, 0 to below 1: where in all weight a draw stops) and `said`
    (int32, tokens drawn) are rings of RING; both may be host memory that the device uses.
    """

    wishes: int
    turn: int
    draw: int
    shares: int
    said: int

    SIZES: ClassVar = (WISHES_BYTES, TURN_BYTES, 24 + 4 * BUCKETS + 8 * MOST_CANDIDATES)
    """Bytes of the first three."""


class SamplingOps(OpsBase):
    """Draws on the device."""

    def draw_token(self, logits: DeviceTensor, places: DrawPlaces) -> None:
        """Draw from logits [1, vocabulary] into the step's first token, unless the turn ended."""
        count = logits.size
        grid = (min(blocks(count, _THREADS), _MOST_BLOCKS),)
        over = (logits, count, places.draw)
        self._launch(programs.SAMPLING, "begin_draw", (1,), _DRAW_THREADS, places.draw)
        self._launch(programs.SAMPLING, "find_best", grid, _THREADS, *over)
        self._launch(programs.SAMPLING, "count_logits", grid, _THREADS, *over)
        cut = (places.wishes, count, places.draw)
        self._launch(programs.SAMPLING, "find_cut", (1,), WARP, *cut)
        self._launch(programs.SAMPLING, "gather", grid, _THREADS, *over)
        drawn = (places.wishes, places.shares, places.draw, places.turn)
        rings = (self.step.tokens, places.said)
        self._launch(programs.SAMPLING, "draw_token", (1,), _DRAW_THREADS, *drawn, *rings)

    def advance_turn(self, places: DrawPlaces) -> None:
        """One more token is held, unless the turn ended before it."""
        self._launch(programs.SAMPLING, "advance_turn", (1,), 1, self.step.position, places.turn)
