"""Which layers of a model see only the last tokens, as its header says."""

from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.errors import GgufError

USUAL_PERIOD = 2
"""Without `attention.sliding_window_pattern` the last of every two layers sees everything."""


def window_of(header: Hyperparameters, index: int) -> int:
    """How many tokens layer `index` sees, its own among them; 0 for all.

    `attention.sliding_window` is absent or 0 in models without windows.

    Raises:
        GgufError: the window is no count, or the pattern does not reach the layer.
    """
    window = header.natural("attention.sliding_window", default=0)
    return window if window and is_windowed(header, index) else 0


def is_windowed(header: Hyperparameters, index: int) -> bool:
    """Whether layer `index` of a model with windows sees only the last tokens.

    `attention.sliding_window_pattern` is one bool per layer, or a period P: the last of every P
    layers sees everything.

    Raises:
        GgufError: the pattern lists fewer layers.
    """
    name = "attention.sliding_window_pattern"
    if not header.is_list(name):
        period = header.positive(name, default=USUAL_PERIOD)
        return index % period < period - 1
    listed = header.booleans(name)
    if index >= len(listed):
        raise GgufError(
            f"{header.key(name)} has {len(listed)} entries, layer {index} is not among them."
        )
    return listed[index]
