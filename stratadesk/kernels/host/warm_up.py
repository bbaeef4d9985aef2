"""Making the kernels of a model ready before its first token."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kernel import Kernel

ALWAYS = ("elementwise", "routing")
"""Modules of kernels that every model needs."""


def warm_up(
    formats: set[str],
    kv_format: str,
    progress: Callable[[int, int], None],
    modules: Iterable[str] = (),
) -> None:
    """Load or compile every kernel for weights in `formats` and a KV cache in `kv_format`.

    `modules` are those of this package, besides `ALWAYS`, whose kernels the family uses.
    Calls `progress(done, total)` before the first kernel and after each; a machine that has
    compiled these sources before only loads them.
    """
    kernels = list(_needed(formats, kv_format, modules))
    for done, item in enumerate(kernels):
        progress(done, len(kernels))
        item.compile()
    progress(len(kernels), len(kernels))


def _needed(formats: set[str], kv_format: str, modules: Iterable[str]) -> Iterator[Kernel]:
    for name in sorted(formats):
        yield FORMATS[name].matmul
        yield FORMATS[name].rows
    yield ATTENTION[kv_format]
    for module in (*ALWAYS, *modules):
        yield from _kernels_of(module, formats, kv_format)


def _kernels_of(name: str, formats: set[str], kv_format: str) -> Iterator[Kernel]:
    """All kernels of a module; of those made per format, what its `kernels_for` says."""
    module = import_module(f"stratadesk.kernels.host.{name}")
    yield from (value for value in vars(module).values() if isinstance(value, Kernel))
    if hasattr(module, "kernels_for"):
        yield from module.kernels_for(formats, kv_format)
