"""How a Numba function becomes a kernel: declared signature, cached machine code, no surprises.

A kernel is compiled for exactly one signature. Any other argument types are a programming error
and raise at once, where plain Numba would silently spend seconds compiling again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from numba import njit

# What a sum may do to be vectorised: be reordered, and fuse multiply and add. NaN and infinity
# keep their meaning. The code of a row is the same for any number of rows, so results are too.
SUM_MATH = {"reassoc", "contract", "nsz"}


@dataclass(slots=True)
class Kernel:
    """One compiled function. `compile()` must have run before it is called."""

    name: str
    signature: str
    dispatcher: Any

    def compile(self) -> bool:
        """Load the machine code from the cache or make it; return whether it was made."""
        if self.dispatcher.signatures:
            return False
        self.dispatcher.compile(self.signature)
        self.dispatcher.disable_compile()
        return not self.dispatcher.stats.cache_hits

    def __call__(self, *args: Any) -> None:
        """Run with arguments of the declared types; raises TypeError for any others."""
        self.dispatcher(*args)


def kernel(signature: str, *, parallel: bool = True) -> Callable[[Callable[..., None]], Kernel]:
    """Decorate a module-level function as a kernel with a Numba `signature`."""

    def wrap(function: Callable[..., None]) -> Kernel:
        dispatcher = njit(cache=True, nogil=True, parallel=parallel)(function)
        return Kernel(function.__name__, signature, dispatcher)

    return wrap


def specialise(
    template: Callable[..., None],
    signature: str,
    decode: Any,
    *,
    parallel: bool = True,
    **names: Any,
) -> Kernel:
    """Make a kernel of `template` in which the global name `decode` means `decode`.

    `names` replaces further globals. Numba's cache keys a function by file, qualified name and
    line, so the copy gets a name of its own: `matmul` with `decode_q4_k` becomes `matmul_q4_k`.
    """
    assert isinstance(template, FunctionType)
    name = f"{template.__name__}_{decode.__name__.removeprefix('decode_')}"
    scope = {**template.__globals__, **names, "decode": decode}
    copy = FunctionType(template.__code__, scope, name)
    copy.__qualname__ = name
    copy.__module__ = template.__module__
    return kernel(signature, parallel=parallel)(copy)
