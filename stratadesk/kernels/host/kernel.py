"""How a Numba function becomes a kernel: declared signature, cached machine code, no surprises.

A kernel is compiled for exactly one signature. Any other argument types are a programming error
and raise at once, where plain Numba would silently spend seconds compiling again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import Any

from numba import njit

# What a sum may do to be vectorised: be reordered, and fuse multiply and add. NaN and infinity
# keep their meaning. The code of a row is the same for any number of rows, so results are too.
SUM_MATH = {"reassoc", "contract", "nsz"}


SMALL = 1 << 18
"""Up to so many steps of work a kernel runs on the calling thread alone: about 65 µs, where waking
the others took 50 to 150 µs. A step is a weight decoded and multiplied, or as much."""

WorkOf = Callable[..., int]
"""Counts the steps of work from a kernel's arguments."""


@dataclass(slots=True)
class Kernel:
    """One compiled function. `compile()` must have run before it is called.

    `alone` is the same function compiled for one thread, which takes what `work` counts as small.
    """

    name: str
    signature: str
    dispatcher: Any
    alone: Any = None
    work: WorkOf | None = None

    def compile(self) -> bool:
        """Load the machine code from the cache or make it; return whether any was made."""
        made = [self._compile(self.dispatcher)]
        if self.alone is not None:
            made.append(self._compile(self.alone))
        return any(made)

    def __call__(self, *args: Any) -> None:
        """Run with arguments of the declared types; raises TypeError for any others."""
        if self.work is not None and self.work(*args) <= SMALL:
            self.alone(*args)
        else:
            self.dispatcher(*args)

    def _compile(self, dispatcher: Any) -> bool:
        if dispatcher.signatures:
            return False
        dispatcher.compile(self.signature)
        dispatcher.disable_compile()
        return not dispatcher.stats.cache_hits


def kernel(
    signature: str, *, parallel: bool = True, work: WorkOf | None = None
) -> Callable[[Callable[..., None]], Kernel]:
    """Decorate a module-level function as a kernel with a Numba `signature`.

    With `work`, small work is done on the calling thread, by the same code and to the same bits.
    """

    def wrap(function: Callable[..., None]) -> Kernel:
        dispatcher = njit(cache=True, nogil=True, parallel=parallel)(function)
        alone = None
        if work is not None:
            alone = njit(cache=True, nogil=True)(_renamed(function, f"{function.__name__}_alone"))
        return Kernel(function.__name__, signature, dispatcher, alone, work)

    return wrap


def specialise(
    template: Callable[..., None],
    signature: str,
    decode: Any,
    *,
    parallel: bool = True,
    work: WorkOf | None = None,
    **names: Any,
) -> Kernel:
    """Make a kernel of `template` in which the global name `decode` means `decode`.

    `names` replaces further globals; `matmul` with `decode_q4_k` becomes `matmul_q4_k`.
    """
    name = f"{template.__name__}_{decode.__name__.removeprefix('decode_')}"
    copy = _renamed(template, name, {**names, "decode": decode})
    return kernel(signature, parallel=parallel, work=work)(copy)


def _renamed(
    function: Callable[..., None], name: str, names: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., None]:
    """Copy a function under another name, with other meanings of the global `names`.

    Numba's cache keys a function by file, qualified name and line: no two may share all three.
    """
    assert isinstance(function, FunctionType)
    scope = {**function.__globals__, **names} if names else function.__globals__
    copy = FunctionType(function.__code__, scope, name)
    copy.__qualname__ = name
    copy.__module__ = function.__module__
    return copy
