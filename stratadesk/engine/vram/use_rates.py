"""How often each expert was used lately: what decides which of them a very small cache keeps.

With fewer slots a layer than about three times the experts that a token uses, least-recently-used
replacement throws out every popular expert before its next use. There, a missed expert takes
the place of another only if it is more likely to be used in the next step:

    rate(missed) + reuse(layer) > rate(victim)

`rate` is the share of late steps that used an expert, as an exponential average. `reuse` is by
how much an expert of one step is used in the next step more often than its rate says. Where
routing repeats itself from token to token `reuse` is high and the newcomer is let in, as LRU
would; where it only prefers some experts `reuse` is near 0 and the popular ones stay.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RATE_HALF_LIFE = 32
"""Steps after which a use counts half in an expert's rate."""
REUSE_HALF_LIFE = 16
"""Steps after which an observation counts half in a layer's reuse."""

_RATE_KEPT = 0.5 ** (1 / RATE_HALF_LIFE)
_REUSE_KEPT = 0.5 ** (1 / REUSE_HALF_LIFE)


class UseRates:
    """Rates per [layer, expert] and reuse per layer, each a share of steps from 0 to 1."""

    def __init__(self, layers: int, experts: int) -> None:
        self._rate = np.zeros((layers, experts), np.float32)
        self._reuse = [0.0] * layers
        self._last: list[list[int]] = [[] for _ in range(layers)]

    def begin_step(self) -> None:
        """Let one step pass."""
        self._rate *= _RATE_KEPT

    def note(self, layer: int, experts: Sequence[int]) -> None:
        """Note the distinct experts that this step uses in `layer`."""
        rate = self._rate[layer]
        last = self._last[layer]
        if last:
            again = len(set(last).intersection(experts)) / len(last)
            expected = float(rate[last].mean())
            self._reuse[layer] *= _REUSE_KEPT
            self._reuse[layer] += (again - expected) * (1 - _REUSE_KEPT)
        self._last[layer] = list(experts)
        rate[self._last[layer]] += 1 - _RATE_KEPT

    def note_prompt(self, counts: NDArray[np.int64], used: int) -> None:
        """Note a whole prompt, each of whose tokens uses `used` experts of a layer.

        `counts` are its uses per [layer, expert]. The rates become what they were if the uses
        had been spread evenly over as many steps as it has tokens.
        """
        tokens = counts.sum(axis=1, keepdims=True) / used
        kept = _RATE_KEPT**tokens
        shares = counts / np.maximum(tokens, 1)
        self._rate[:] = self._rate * kept + shares * (1 - kept)

    def highest_first(self, layer: int, experts: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the order (indices) of `experts` from the highest rate to the lowest."""
        return np.argsort(-self._rate[layer, experts], kind="stable")

    def prefers(self, layer: int, missed: int, victim: int) -> bool:
        """Whether the next step is likelier to use `missed`, used now, than `victim`."""
        newcomer = self._rate.item(layer, missed) + self._reuse[layer]
        return newcomer > self._rate.item(layer, victim)
