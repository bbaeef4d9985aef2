"""Choosing the next token from logits, step by step as llama.cpp does.

Penalties, top-k, top-p, min-p, temperature, then a draw. Of equal logits those of lower ids
count as better.
"""

import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.sampling_checks import check_logits, check_settings

Logits = NDArray[np.float32]
Weights = NDArray[np.float64]

_BLOCK = 256
_BUCKETS = 4096
_DEEPEST = 64.0


@dataclass(frozen=True, slots=True)
class Candidates:
    """Logits (float32) of tokens and their ids (int64), both of shape [n].

    Without ids they are the whole vocabulary in order.
    """

    logits: Logits
    ids: NDArray[np.int64] | None = None

    def take(self, kept: NDArray[np.int64]) -> "Candidates":
        """Return those at the indices `kept`, in that order."""
        return Candidates(self.logits[kept], kept if self.ids is None else self.ids[kept])

    def first(self, n: int) -> "Candidates":
        """Return the first `n`."""
        return Candidates(self.logits[:n], None if self.ids is None else self.ids[:n])

    def sorted(self) -> "Candidates":
        """Return them best first, equal ones in the order they are in."""
        return self.take(np.argsort(-self.logits, kind="stable"))

    def id_at(self, index: int) -> int:
        """Return the id of the candidate at `index`."""
        return index if self.ids is None else int(self.ids[index])


class Sampler:
    """Draws the tokens of one answer.

    Draws come from NumPy's PCG64 with `seed`, so that equal seeds, settings and logits give
    equal tokens on every platform. `seed` is the one used: a fresh one if the settings had none.

    Raises UsageError for settings out of range.
    """

    def __init__(self, settings: SamplingSettings) -> None:
        check_settings(settings)
        self.settings = self._settings = settings
        self.seed = secrets.randbits(32) if settings.seed is None else settings.seed
        self._random = np.random.Generator(np.random.PCG64(self.seed))

    def share(self) -> float:
        """Where in all weight the next draw stops, 0 to below 1: for draws made elsewhere."""
        return float(self._random.random())

    def next(self, logits: Logits, history: Sequence[int]) -> int:
        """Return the id of the next token; temperature 0 takes the best, of equal ones the first.

        `logits` [vocabulary] stay as they are. `history` are the ids so far, the prompt's too,
        of which the penalties look at the last `penalty_last_n`.

        Raises StrataDeskError when a logit is not a finite number.
        """
        check_logits(logits)
        logits = penalise(logits, history, self._settings)
        if self._settings.temperature == 0:
            return int(logits.argmax())
        candidates = narrow(logits, self._settings)
        weights = weigh(candidates.logits, self._settings.temperature)
        return candidates.id_at(pick(weights, self._random.random()))


def penalise(logits: Logits, history: Sequence[int], settings: SamplingSettings) -> Logits:
    """Return `logits` with those of recent tokens changed, a copy if there are any.

    A token seen c times: its logit is divided by `repeat_penalty` if positive and multiplied
    otherwise, then lowered by c x `frequency_penalty` + `presence_penalty` (llama.cpp).
    """
    repeat, last_n = settings.repeat_penalty, settings.penalty_last_n
    presence, frequency = settings.presence_penalty, settings.frequency_penalty
    if last_n == 0 or (repeat == 1 and presence == 0 and frequency == 0):
        return logits
    recent = history if last_n < 0 else history[-last_n:]
    counted = Counter(token for token in recent if 0 <= token < logits.size)
    ids = np.array(list(counted.keys()), np.int64)
    counts = np.array(list(counted.values()), np.float64)
    old = logits[ids].astype(np.float64)
    new = np.where(old > 0, old / repeat, old * repeat) - (counts * frequency + presence)
    largest = float(np.finfo(np.float32).max)
    changed = logits.copy()
    changed[ids] = np.clip(new, -largest, largest)
    return changed


def narrow(logits: Logits, settings: SamplingSettings) -> Candidates:
    """Return the candidates that top-k, top-p and min-p leave: at least one."""
    candidates = Candidates(logits)
    if 0 < settings.top_k < logits.size:
        candidates = best(logits, settings.top_k)
        if settings.top_p < 1:
            size = nucleus_size(weigh(candidates.logits), settings.top_p)
            candidates = candidates.first(size)
    elif settings.top_p < 1:
        candidates = nucleus_of_all(logits, settings.top_p)
    if settings.min_p > 0:
        floor = float(candidates.logits.max()) + math.log(settings.min_p)
        candidates = candidates.take(np.flatnonzero(candidates.logits >= floor))
    return candidates


def best(logits: Logits, n: int) -> Candidates:
    """Return the `n` (1 to vocabulary) best candidates, best first."""
    reached = np.flatnonzero(logits >= _reached_by(logits, n))
    return Candidates(logits).take(reached).sorted().first(n)


def nucleus_of_all(logits: Logits, top_p: float) -> Candidates:
    """Return the best candidates that hold `top_p` of all probability, in order of ids.

    Instead of sorting the vocabulary, logits are thrown into buckets of equal width (the last
    takes all that weigh next to nothing); only the bucket in which `top_p` is passed is sorted.
    """
    weights = weigh(logits)
    with np.errstate(over="ignore"):
        depth = np.minimum(logits.max() - logits, np.float32(_DEEPEST))
    buckets = (depth * ((_BUCKETS - 1) / max(float(depth.max()), 1e-30))).astype(np.int64)
    sums = np.cumsum(np.bincount(buckets, weights, _BUCKETS))
    passed = int(np.searchsorted(sums, top_p * sums[-1]))
    inside = buckets < passed
    edge = np.flatnonzero(buckets == passed)
    edge = edge[np.argsort(-logits[edge], kind="stable")]
    missing = top_p * sums[-1] - (sums[passed - 1] if passed else 0.0)
    inside[edge[: _first_sum(weights[edge], missing)]] = True
    return Candidates(logits).take(np.flatnonzero(inside))


def nucleus_size(weights: Weights, top_p: float) -> int:
    """Return how many of the sorted `weights` it takes to hold `top_p` of their sum."""
    return _first_sum(weights, top_p * float(weights.sum()))


def weigh(logits: Logits, temperature: float = 1.0) -> Weights:
    """Return exp((logit - best logit) / temperature): probabilities but for a common factor."""
    weights = logits.astype(np.float64)
    weights -= weights.max()
    with np.errstate(over="ignore"):
        weights /= temperature
    return np.exp(weights, out=weights)


def pick(weights: Weights, share: float) -> int:
    """Return the index at which `share` (0 to below 1) of all weight is passed.

    The array is used up: it holds the sums afterwards.
    """
    sums = np.cumsum(weights, out=weights)
    passed = int(np.searchsorted(sums, share * sums[-1], side="right"))
    return min(passed, int(np.searchsorted(sums, sums[-1])))


def _first_sum(weights: Weights, mass: float) -> int:
    return int(np.searchsorted(np.cumsum(weights), mass)) + 1


def _reached_by(logits: Logits, n: int) -> np.float32:
    """Return a value that at least `n` logits reach, and not many more.

    The n-th best of the maxima of blocks is one: each of those blocks has a logit that high.
    Looking only at the maxima is ten times as fast as partitioning a large vocabulary.
    """
    blocks = logits.size // _BLOCK
    pool = logits[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(1) if n <= blocks else logits
    return np.float32(np.partition(pool, pool.size - n)[pool.size - n])
