"""Opening the graphics card: driver, architecture, and the rules that hold for CuPy.

Device, stream and allocator are settings of a thread in CuPy, so `open_device` is called on the
thread that computes. CuPy launches kernels and captures graphs; it must never allocate.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from stratadesk.errors import DeviceError, MemoryShortageError, StrataDeskError
from stratadesk.kernels.cuda.compiler import OLDEST, compiler_version
from stratadesk.kernels.cuda.loss import FATAL, LOSS
from stratadesk.units import format_bytes

OVERLAPPING, OVERLAPPING_DRIVER = 90, 12_030
"""Compute capability, and CUDA version of the driver, that start a graph's kernels early."""

EARLY_VARIABLE = "STRATADESK_EARLY"
"""0 in this variable of the environment has kernels follow each other on every card."""

OLDEST_DRIVER = 12_000
"""CUDA 12.0: what the driver must support, since the runtime is that of CUDA 12."""

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY."""

BUSY = 46
"""cudaErrorDevicesUnavailable: another program has the card for itself."""


@dataclass(frozen=True, slots=True)
class Device:
    """The card in use. `total` is its memory in bytes, `arch` such as "sm_89".

    `pci_bus_id` is such as "0000:01:00.0", None where it is not known. `side` is a second stream,
    for what may be computed beside the first one's work; without it all is done on `stream`.
    """

    index: int
    name: str
    arch: str
    total: int
    multiprocessors: int
    stream: Any
    pci_bus_id: str | None = None
    side: Any = None
    overlaps: bool = False
    """Whether a kernel can be started before the one in front of it has ended."""

    def free(self) -> int:
        """Bytes that CUDA says are free for this process."""
        from cupy.cuda import runtime

        with translated("reading its free memory"):
            return int(runtime.memGetInfo()[0])


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn CuPy's errors inside the `with` block into one sentence about what was being done.

    Raises:
        MemoryShortageError: when the card was full.
        DeviceLostError: when the card does not answer any more.
        DeviceError: for any other refusal.
    """
    from cupy.cuda import driver, runtime

    try:
        yield
    except (runtime.CUDARuntimeError, driver.CUDADriverError) as error:
        words = str(error).partition(":")[2].strip() or str(error)
        raise error_for(int(error.status), doing, words) from None


def error_for(status: int, doing: str, words: str) -> StrataDeskError:
    """The error for a CUDA `status` met while `doing` something; `words` are the driver's.

    Whatever a card that is lost answers means that it is lost.
    """
    if LOSS.why or status in FATAL:
        return LOSS.note(f"stopped answering while {doing}: {words}")
    if status == OUT_OF_MEMORY:
        return MemoryShortageError(
            f"The graphics card ran out of memory while {doing}.",
            "Close other programs that use it, or choose a smaller --max-context.",
        )
    if status == BUSY:
        return DeviceError(
            f"The graphics card is busy: another program has it for itself ({words}).",
            "End that program, or use --device host.",
        )
    return DeviceError(
        f"The graphics card failed while {doing}: {words}.",
        "Load the model again; if it fails again, restart the machine or use --device host.",
    )


def open_device(index: int = 0) -> Device:
    """Make card `index` current on this thread, with a stream of its own and no allocator.

    Raises:
        DeviceError: no driver, a driver or a card that is too old, no such card, or one that
            another program has for itself.
        DeviceLostError: the card was lost before: this process cannot use it any more.
    """
    LOSS.check()
    try:
        import cupy
        from cupy.cuda import runtime
    except ImportError as missing:
        raise _not_installed(missing) from None
    compiler_version()
    driver = driver_version()
    LOSS.stay_quiet()
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as refused:
        raise DeviceError(
            f"No NVIDIA card can be used: {str(refused).partition(':')[2].strip() or refused}.",
            "Install or update the NVIDIA driver, or use --device host.",
        ) from None
    if index >= count:
        raise DeviceError(
            f"There are {count} NVIDIA cards, none numbered {index}.", "Use --device host."
        )
    with translated("being opened"):
        runtime.setDevice(index)
        facts = runtime.getDeviceProperties(index)
        runtime.free(0)  # makes the context: a busy card refuses here
        bus_id = runtime.deviceGetPCIBusId(index)
        stream, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.set_allocator(_refuse)
    capability = facts["major"] * 10 + facts["minor"]
    name = facts["name"].decode(errors="replace")
    if capability < OLDEST:
        raise DeviceError(
            f"{name} has compute capability {capability / 10}, and {OLDEST / 10} is needed.",
            "Use --device host.",
        )
    return Device(
        index,
        name,
        f"sm_{capability}",
        int(facts["totalGlobalMem"]),
        int(facts["multiProcessorCount"]),
        stream,
        bus_id,
        side,
        overlaps=capability >= OVERLAPPING
        and driver >= OVERLAPPING_DRIVER
        and os.environ.get(EARLY_VARIABLE) != "0",
    )


def driver_version() -> int:
    """The newest CUDA that the driver supports, such as 12040; opens no card.

    Raises:
        DeviceError: when there is no driver, or one for an older CUDA than is needed, or nothing
            to ask it with.
    """
    try:
        from cupy.cuda import runtime
    except ImportError as missing:
        raise _not_installed(missing) from None
    with translated("asking for its driver"):
        version = int(runtime.driverGetVersion())
    if not version:
        raise DeviceError(
            "There is no NVIDIA driver on this machine.", "Install it, or use --device host."
        )
    if version < OLDEST_DRIVER:
        raise DeviceError(
            f"The NVIDIA driver supports CUDA {version // 1000}.{version % 1000 // 10}, and 12.0 "
            "is needed.",
            "Update the driver (525 or newer), or use --device host.",
        )
    return version


def _not_installed(missing: ImportError) -> DeviceError:
    return DeviceError(f"The CUDA parts are not installed ({missing}).", "Use --device host.")


def _refuse(n_bytes: int) -> NoReturn:
    raise RuntimeError(f"CuPy wanted to allocate {format_bytes(n_bytes)}: only the arena may")
