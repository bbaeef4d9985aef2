"""Frequencies of rotary position embedding from a model's header."""

import math

import numpy as np
import numpy.typing as npt

from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import GgufError, UnsupportedModelError

# Turns of a pair over the original context at which YaRN begins and ends to interpolate.
YARN_FAST_TURNS, YARN_SLOW_TURNS = 32.0, 1.0

LARGEST_ROTATION = 1 << 16
"""Far above the values of any head; more is a damaged header."""

# What files may also say about scaling, and the values of each that are computed here.
_USUAL = {
    "rope.scale_linear": (1.0, 0.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_beta_fast": (YARN_FAST_TURNS,),
    "rope.scaling.yarn_beta_slow": (YARN_SLOW_TURNS,),
}


def rope_frequencies(
    header: Hyperparameters, head_size: int
) -> tuple[npt.NDArray[np.float64], float]:
    """Return angle per position of each pair, float64 [R/2], and the magnitude of cos and sin.

    R is `rope.dimension_count` (absent: the head). Base b = `rope.freq_base`: b^(-2i/R), changed
    by `rope.scaling.type` linear or yarn (source: docs of ggml's rope). Pairs that belong to the
    fourth stream of `rope.dimension_sections` do not rotate for text.
    """
    rotated = header.positive("rope.dimension_count", default=head_size)
    if rotated > head_size or rotated % 2:
        raise GgufError(
            f"{header.key('rope.dimension_count')} is {rotated}, but a head has {head_size} "
            "values and they rotate in pairs."
        )
    if rotated > LARGEST_ROTATION:
        raise GgufError(
            f"{header.key('rope.dimension_count')} comes to {rotated}, more than a head has values."
        )
    base = header.real("rope.freq_base", default=10000.0)
    if not (math.isfinite(base) and base > 1):
        raise GgufError(f"{header.key('rope.freq_base')} is {base}, not a number above 1.")
    pairs = np.arange(rotated // 2)
    frequencies = np.power(base, -2.0 * pairs / rotated)
    frequencies, magnitude = _scaled(header, frequencies, rotated, base)
    frequencies[_still_pairs(header, pairs)] = 0.0
    return frequencies, magnitude


def _scaled(
    header: Hyperparameters, frequencies: npt.NDArray[np.float64], rotated: int, base: float
) -> tuple[npt.NDArray[np.float64], float]:
    _refuse_unusual(header)
    kind = header.text("rope.scaling.type", default="none")
    if kind == "none":
        return frequencies, 1.0
    factor = _factor(header)
    if kind == "linear":
        return frequencies / factor, 1.0
    if kind != "yarn":
        raise UnsupportedModelError(
            f"RoPE scaling {kind!r} is not supported; this version computes none, linear, yarn."
        )
    original = header.positive("rope.scaling.original_context_length")
    keep = _yarn_keep(rotated, base, original)
    return frequencies * ((1.0 - keep) / factor + keep), 1.0 + 0.1 * math.log(factor)


def yarn_logarithm(header: Hyperparameters) -> float:
    """ln f of YaRN's factor f, 0 without YaRN."""
    if header.text("rope.scaling.type", default="none") != "yarn":
        return 0.0
    return math.log(_factor(header))


def _refuse_unusual(header: Hyperparameters) -> None:
    for name, usual in _USUAL.items():
        value = header.real(name, default=usual[0])
        if value not in usual:
            raise UnsupportedModelError(
                f"{header.key(name)} is {value}; this version computes RoPE with {usual[0]} alone."
            )


def _factor(header: Hyperparameters) -> float:
    factor = header.real("rope.scaling.factor", default=1.0)
    if not (math.isfinite(factor) and factor > 0):
        raise GgufError(f"{header.key('rope.scaling.factor')} is {factor}, not above 0.")
    return factor


def _yarn_keep(rotated: int, base: float, original: int) -> npt.NDArray[np.float64]:
    """How much of each pair's own frequency YaRN keeps, 1 for fast pairs to 0 for slow ones."""

    def pair_of(turns: float) -> float:
        return rotated * math.log(original / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(0, math.floor(pair_of(YARN_FAST_TURNS)))
    high = min(rotated - 1, math.ceil(pair_of(YARN_SLOW_TURNS)))
    ramp = (np.arange(rotated // 2) - low) / max(0.001, high - low)
    return 1.0 - np.clip(ramp, 0.0, 1.0)


def _still_pairs(header: Hyperparameters, pairs: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Pairs that follow the fourth position stream, which is 0 for text."""
    sections = header.integers("rope.dimension_sections")
    if not sections:
        return np.zeros(pairs.size, np.bool_)
    if len(sections) != 4 or min(sections) < 0 or sum(sections) == 0:
        raise GgufError(
            f"{header.key('rope.dimension_sections')} is {list(sections)}, not four counts."
        )
    time, height, width, _ = sections
    sector = pairs % sum(sections)
    moving = (sector % 3 == 0) & (sector < 3 * time)
    moving |= (sector % 3 == 1) & (sector < 3 * height)
    moving |= (sector % 3 == 2) & (sector < 3 * width)
    still: npt.NDArray[np.bool_] = ~moving
    return still
