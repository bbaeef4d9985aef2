"""Numba's own environment variables, checked before Numba reads them. Imports no Numba.

Numba takes a value that it does not know for its default, fails at the first kernel, or ends the
process; it never names the variable.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final

from stratadesk.errors import UsageError
from stratadesk.settings import quoted

LAYER_VARIABLE = "NUMBA_THREADING_LAYER"
LAYERS = ("workqueue", "omp", "tbb", "default", "safe", "forksafe", "threadsafe")
MOST_THREADS = 4096
"""More than any machine has cores. Numba crashes on a number that no thread pool can have."""


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Raise `UsageError` for a variable with a value that Numba cannot work with.

    An empty one counts as unset.
    """
    for variable, (fits, allowed) in _RULES.items():
        text = environment.get(variable, "").strip()
        if text and not fits(text):
            raise UsageError(f"{_told(variable, text)} is not {allowed}.", _remedy(variable))


def check_threads() -> None:
    """Start Numba's threads; raises `UsageError` where the layer chosen for them is not there.

    Imports Numba.
    """
    import numba

    try:
        numba.get_num_threads()
    except ValueError as error:
        layer = os.environ.get(LAYER_VARIABLE, "")
        cause = str(error).partition("\n")[0].rstrip(".")
        raise UsageError(
            f"{_told(LAYER_VARIABLE, layer)} does not work here: {cause}.", _remedy(LAYER_VARIABLE)
        ) from None


def _told(variable: str, text: str) -> str:
    return f"{variable}={quoted(text)[1:-1]}"


def _remedy(variable: str) -> str:
    return f"Change it, or unset {variable}."


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text[:10]) <= MOST_THREADS


def _are_features(text: str) -> bool:
    return all(part.strip()[:1] in ("+", "-") for part in text.split(","))


_RULES: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "NUMBA_NUM_THREADS": (_is_count, f"a number of threads from 1 to {MOST_THREADS}"),
    LAYER_VARIABLE: (LAYERS.__contains__, f"one of {', '.join(LAYERS)}"),
    "NUMBA_DISABLE_JIT": ("0".__eq__, "0: kernels must be compiled"),
    "NUMBA_CPU_FEATURES": (_are_features, "a list like +avx2,-avx512f"),
}
"""What each variable may be, as a test and in words."""
