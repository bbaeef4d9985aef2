"""Compiling once what several test processes need at the same time, and in both at once.

Compiled kernels are kept on disk, but processes that start on an empty folder would all compile
the same ones: each compilation has a lock, and whoever finds it taken does another one first.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: every process compiles for itself
    fcntl = None  # type: ignore[assignment]


@contextmanager
def compiling(lock: Path, *, patient: bool = True) -> Iterator[bool]:
    """Hold `lock`, a file that is made if need be; whether it is held, which the patient wait for.

    It ends with the process that holds it.
    """
    if fcntl is None:
        yield True
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        held = False
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | (0 if patient else fcntl.LOCK_NB))
            held = True
        yield held


def share_kernels() -> None:
    """Have this process compile no kernel of the host while another one does."""
    from stratadesk.kernels.host import warm_up
    from stratadesk.kernels.host.kernel import Kernel

    folder = Path(os.environ["NUMBA_CACHE_DIR"]) / "locks"
    alone, needed = Kernel.compile, warm_up._needed

    def compile_once(kernel: Kernel, *, patient: bool = True) -> bool:
        if kernel.dispatcher.signatures:
            return alone(kernel)
        with compiling(folder / kernel.name, patient=patient) as held:
            return alone(kernel) if held else False

    def needed_by_turns(formats: set[str], kv: str, modules: Iterable[str]) -> Iterator[Kernel]:
        kernels = list(needed(formats, kv, modules))
        for kernel in kernels:
            compile_once(kernel, patient=False)
        yield from kernels

    Kernel.compile = compile_once  # type: ignore[method-assign]
    warm_up._needed = needed_by_turns
