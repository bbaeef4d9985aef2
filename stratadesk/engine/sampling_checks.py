"""What sampling settings may be, and what logits must be."""

import math

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.commands import SamplingSettings
from stratadesk.errors import ModelError, StrataDeskError, UsageError

_RANGES = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "penalty_last_n": (-1, 2**31 - 1),
    "seed": (0, 2**64 - 1),
}


def check_settings(settings: SamplingSettings) -> None:
    """Raise UsageError for the first setting outside its range, naming value and range."""
    for name, (low, high) in _RANGES.items():
        value = getattr(settings, name)
        if value is None or (low <= value <= high and math.isfinite(value)):
            continue
        raise UsageError(
            f"The {name.replace('_', ' ')} is {value}, not between {low} and {high}.",
            f"Choose one from {low} to {high}.",
        )
    if "" in settings.stop:
        raise UsageError(
            "A stop string is empty: it would end every answer at once.", "Leave it out."
        )


def check_logits(logits: NDArray[np.float32]) -> None:
    """Check the logits [vocabulary] of one token.

    Raises:
        ModelError: they are not finite numbers; says which not.
    """
    if logits.ndim != 1 or not logits.size:
        raise StrataDeskError(
            f"Logits of shape {logits.shape} are no logits of one token.", "Load the model again."
        )
    finite = np.isfinite(logits)
    if finite.all():
        return
    bad = np.flatnonzero(~finite)
    shown = ", ".join(f"{i} ({logits[i]})" for i in bad[:3].tolist())
    raise ModelError(
        f"{bad.size:,} of {logits.size:,} logits are not finite numbers, first of all those of "
        f"token {shown}.",
        "The model's weights are damaged: download it again.",
    )
