"""Host memory that kernels read over the link."""

import ctypes
from contextlib import suppress
from typing import Any

import numpy as np

from stratadesk.errors import DeviceLostError
from stratadesk.kernels.cuda.device import translated
from stratadesk.units import format_bytes

MAPPED = 2
"""cudaHostAllocMapped: the device reads it at the host's address."""


class MappedCopy:
    """A copy of an array in pinned memory; `address` is valid on host and device.

    Raises:
        MemoryShortageError: when the driver does not pin that much.
    """

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        from cupy.cuda import runtime

        with translated(f"pinning {format_bytes(data.nbytes)} of RAM"):
            self.address = int(runtime.hostAlloc(data.nbytes, MAPPED))
        ctypes.memmove(self.address, np.ascontiguousarray(data).ctypes.data, data.nbytes)

    def release(self) -> None:
        """Give the memory back; no kernel may read it any more.

        That of a card which is lost goes with the process.
        """
        from cupy.cuda import runtime

        with suppress(DeviceLostError), translated("unpinning RAM"):
            runtime.freeHost(self.address)
