"""The CUDA operation that draws a token from logits; see src/sampling.cu for how."""

import math
from dataclasses import dataclass

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


WISHES_BYTES = 32


def wishes_of(temperature: float, top_k: int, top_p: float, min_p: float) -> npt.NDArray[np.uint8]:
    """How to draw, as the kernels read it; temperature 0 takes the best.

    `top_k` is 1 to 2,048 and less than the vocabulary.
    """
    wishes = np.zeros(1, "f8, f8, f8, i4, i4")
    log_min_p = math.log(min_p) if min_p > 0 else -math.inf
    wishes[0] = (temperature, top_p, log_min_p, top_k, 0)
    return wishes.view(np.uint8)


@dataclass(frozen=True, slots=True)
class DrawPlaces:
    """Device memory of draws.

    `wishes`: what `wishes_of` gives. `share` (8 bytes, or host memory that the device reads): where
    in all weight the draw stops, float64 from 0 to below 1. `token`: int32, the result. `draw`:
    what the kernels tell each other.
    """

    wishes: int
    share: int
    token: int
    draw: int

    @staticmethod
    def draw_bytes() -> int:
        """Bytes of `draw`."""
        return 24 + 4 * BUCKETS + 8 * MOST_CANDIDATES


class SamplingOps(OpsBase):
    """Draws on the device."""

    def draw_token(self, logits: DeviceTensor, places: DrawPlaces) -> None:
        """Draw a token from logits [1, vocabulary] into `places.token`; a negative one: none."""
        count = logits.size
        grid = (min(blocks(count, _THREADS), _MOST_BLOCKS),)
        over = (programs.SAMPLING, "find_best"), (programs.SAMPLING, "count_logits")
        self._launch(programs.SAMPLING, "begin_draw", (1,), _DRAW_THREADS, places.draw)
        for program, name in over:
            self._launch(program, name, grid, _THREADS, logits, count, places.draw)
        cut = (places.wishes, count, places.draw)
        self._launch(programs.SAMPLING, "find_cut", (1,), WARP, *cut)
        self._launch(programs.SAMPLING, "gather", grid, _THREADS, logits, count, places.draw)
        drawn = (places.wishes, places.share, places.draw, places.token)
        self._launch(programs.SAMPLING, "draw_token", (1,), _DRAW_THREADS, *drawn)
