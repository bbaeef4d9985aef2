"""What every group of CUDA operations stands on: launches, copies, and where results are placed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.cuda.bindings import launch_early
from stratadesk.kernels.cuda.cubins import Kernels
from stratadesk.kernels.cuda.device import Device, translated
from stratadesk.kernels.cuda.programs import Program
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWorkspace

THREADS, WARPS, WARP = 256, 4, 32
"""Threads of a block that goes value by value, warps of one that goes row by row, lanes."""


class Waiting(Protocol):
    """An operation whose launch waits for the next call."""

    def launch(self) -> None:
        """Launch it."""


class OpsBase:
    """Results are placed in `workspace`; what outlives a pass in `resident`.

    `step` says where the tokens of a pass stand. `launches` counts kernels.

    An operation that the next one may complete waits for it (`Waiting`): a product for the sum it
    is added to, for one. Whatever is launched or copied comes behind what waits.
    """

    def __init__(self, device: Device, kernels: Kernels) -> None:
        self.device = device
        self.workspace = DeviceWorkspace(0, 0)
        self.resident = DeviceWorkspace(0, 0)
        self.step = StepState(0, 0)
        self.dry = False
        """Whether only places are given out: nothing is launched or copied."""
        self.launches = 0
        self._waiting: Waiting | None = None
        self._stream = device.stream
        self._kernels = kernels
        self._constants: dict[bytes, DeviceTensor] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back at its end what was made inside it."""
        with self.workspace.scope():
            yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Launch on the card's second stream what is computed in the block."""
        self.flush()
        if self.dry or self.device.side is None:
            yield
            self.flush()
            return
        with translated("starting kernels side by side"):
            self.device.side.wait_event(self.device.stream.record())
        self._stream = self.device.side
        try:
            yield
            self.flush()
        finally:
            self._stream = self.device.stream

    def meet(self) -> None:
        """Let what is launched from here on wait for the last block of `beside`."""
        if self.dry or self.device.side is None:
            return
        with translated("joining kernels that ran side by side"):
            self.device.stream.wait_event(self.device.side.record())

    def constant(self, values: npt.NDArray[Any]) -> DeviceTensor:
        """Values of 4-byte units, kept in `resident`; equal ones once. Waits for the copy."""
        data = np.ascontiguousarray(values).view(np.int32)
        key = data.tobytes()
        if key not in self._constants:
            kept = self.resident.tensor(*data.shape)
            self.upload(kept.address, data)
            self._constants[key] = kept
        return self._constants[key]

    def upload(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array to the device and wait for it."""
        self.flush()
        if self.dry:
            return
        from cupy.cuda import runtime

        data = np.ascontiguousarray(data)
        stream = self.device.stream
        with translated("copying to it"):
            runtime.memcpyAsync(address, data.ctypes.data, data.nbytes, 1, stream.ptr)
            stream.synchronize()

    def download(self, tensor: DeviceTensor) -> npt.NDArray[np.float32]:
        """Wait for the stream and copy a float32 tensor to the host.

        Raises:
            DeviceError: when something before it on the stream failed.
        """
        from cupy.cuda import runtime

        self.flush()
        out = np.empty(tensor.shape, np.float32)
        stream = self.device.stream
        with translated("computing"):
            runtime.memcpyAsync(out.ctypes.data, tensor.address, out.nbytes, 2, stream.ptr)
            stream.synchronize()
        return out

    def clear(self, tensor: DeviceTensor) -> None:
        """Fill with zeros."""
        self.flush()
        if self.dry:
            return
        from cupy.cuda import runtime

        with translated("clearing memory"):
            runtime.memsetAsync(tensor.address, 0, 4 * tensor.size, self.device.stream.ptr)

    def flush(self) -> None:
        """Launch what waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.launch()

    def _wait(self, waiting: "Waiting") -> None:
        """Launch what waited, and let `waiting` wait."""
        self.flush()
        self._waiting = waiting

    def _each(self, program: Program, name: str, count: int, *arguments: Any) -> None:
        """One thread a value; the kernel's last argument is their number."""
        self._launch(program, name, (blocks(count, THREADS),), THREADS, *arguments, count)

    def _launch(
        self, program: Program, name: str, grid: tuple[int, ...], threads: int, *arguments: Any
    ) -> None:
        self.flush()
        if self.dry:
            return
        self.launches += 1
        function, values = self._kernels(program, name), tuple(map(_argument, arguments))
        if self.device.overlaps and program.overlaps:
            launch_early(function.ptr, grid, threads, values, self._stream.ptr)
            return
        with translated(f"starting the kernel {name}"):
            function(grid, (threads,), values, stream=self._stream)


def _argument(value: Any) -> Any:
    """An argument as its kernel declares it: an address, a 4-byte integer or a float32.

    A NumPy scalar is passed as it is.
    """
    if isinstance(value, DeviceTensor):
        return np.uint64(value.address)
    if isinstance(value, np.generic):
        return value
    if isinstance(value, float):
        return np.float32(value)
    # Addresses lie far above any count; a zero is the same in its low half either way.
    return np.uint64(value) if value == 0 or value >= 2**31 else np.int32(value)


def blocks(count: int, each: int) -> int:
    """How many groups of `each` it takes to hold `count`."""
    return -(-count // each)
