"""How tokens become rows of an n-gram table; the same facts for every backend."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class NgramHash:
    """Heads are dealt evenly to 2-grams, 3-grams, … up to as many tokens as `multipliers`.

    An n-gram's hash is the exclusive or of its tokens, the newest first, each times its
    multiplier, wrapping at 2^64. Head g reads row hash mod sizes[g] + offsets[g]. Missing tokens,
    and an end token before the newest with all before it, are read as `end_token`.
    """

    multipliers: Words
    sizes: Words
    offsets: Words
    end_token: int

    @property
    def length(self) -> int:
        """Tokens of the longest n-gram."""
        return self.multipliers.size

    @property
    def heads(self) -> int:
        """Rows that a token reads."""
        return self.sizes.size
