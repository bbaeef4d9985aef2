"""CUDA's driver functions that CuPy has not, from cuda-bindings."""

from typing import Any

import numpy as np

from stratadesk.errors import DeviceError
from stratadesk.kernels.cuda.device import error_for


def driver_functions() -> Any:
    """The driver's functions; DeviceError when cuda-bindings is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as missing:
        raise DeviceError(f"cuda-bindings is not installed ({missing}).") from None
    return driver


def checked(result: tuple[Any, ...], doing: str) -> Any:
    """The value of a driver call; raises what `device.translated` does."""
    status, *values = result
    if int(status):
        raise error_for(int(status), doing, str(status.name))
    return values[0] if values else None


def launch_early(
    function: int,
    grid: tuple[int, ...],
    threads: int,
    arguments: tuple[np.generic, ...],
    stream: int,
) -> None:
    """Launch a kernel that takes its turn (machine.cuh): it may start while the last one runs.

    `function` and `stream` are CUfunction and CUstream. Programmatic dependent launch, CUDA
    programming guide.

    Raises:
        DeviceError: what `device.translated` raises, and when cuda-bindings is not installed.
    """
    driver = driver_functions()
    attribute = driver.CUlaunchAttribute()
    kinds = driver.CUlaunchAttributeID
    attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.hStream, config.attrs, config.numAttrs = driver.CUstream(stream), [attribute], 1
    places = np.zeros(len(arguments), np.uint64)
    for place, value in zip(places.view(np.uint8).reshape(-1, 8), arguments, strict=True):
        raw = np.frombuffer(value.tobytes(), np.uint8)
        place[: raw.size] = raw
    pointers = places.ctypes.data + 8 * np.arange(len(arguments), dtype=np.uint64)
    launched = driver.cuLaunchKernelEx(
        config, driver.CUfunction(function), int(pointers.ctypes.data), 0
    )
    checked(launched, "starting a kernel")
