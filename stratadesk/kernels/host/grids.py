"""The grids of the IQ1 to IQ3 formats, from the `gguf` package, as words of byte lanes."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.quants import IQ2_XXS
from numba import njit

SIGNS = np.frombuffer(IQ2_XXS.ksigns, np.uint8)
"""Eight signs for each value of seven bits: their number of ones is even."""


def grid_words(quant: Any, word: npt.DTypeLike, factor: int = 1) -> npt.NDArray[Any]:
    """The grid of a gguf quantization class, times `factor`: one uint32 or uint64 an entry."""
    quant.init_grid()
    values = (quant.grid.reshape(quant.grid_shape) * factor).astype(np.int8)
    words: npt.NDArray[Any] = values.view(word).reshape(-1)
    return words


@njit
def signs_of(packed: int) -> np.uint32:
    """The 32 signs packed in the lowest 28 bits of a uint32."""
    signs = np.uint32(0)
    for group in range(4):
        index = (packed >> np.uint32(7 * group)) & np.uint32(127)
        signs |= np.uint32(SIGNS[index]) << np.uint32(8 * group)
    return np.uint32(signs)
