"""Making the kernels of a model ready before its first token."""

from collections.abc import Callable, Iterator
from types import ModuleType

from stratadesk.kernels.host import delta_net, elementwise, routing
from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kernel import Kernel


def warm_up(formats: set[str], kv_format: str, progress: Callable[[int, int], None]) -> None:
    """Load or compile every kernel for weights in `formats` and a KV cache in `kv_format`.

    Calls `progress(done, total)` before the first kernel and after each; a machine that has
    compiled these sources before only loads them.
    """
    kernels = list(_needed(formats, kv_format))
    for done, item in enumerate(kernels):
        progress(done, len(kernels))
        item.compile()
    progress(len(kernels), len(kernels))


def _needed(formats: set[str], kv_format: str) -> Iterator[Kernel]:
    for name in sorted(formats):
        yield FORMATS[name].matmul
        yield FORMATS[name].rows
    yield ATTENTION[kv_format]
    for module in (elementwise, routing, delta_net):
        yield from _kernels_of(module)


def _kernels_of(module: ModuleType) -> Iterator[Kernel]:
    return (value for value in vars(module).values() if isinstance(value, Kernel))
