"""The GPU tests' bench on the CPU: memory is an array, kernels are emulated."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.cuda.device import Device
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import LINE, DeviceTensor, DeviceWorkspace
from stratadesk.units import MIB
from tests.gpu.bench import Bench
from tests.kernels.cuda.emulation.kernels import EmulatedKernels, EmulatedStream


class EmulatedOps(CudaOps):
    """Copies are the host's own."""

    def upload(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array to its place."""
        self.flush()
        data = np.ascontiguousarray(data)
        if not self.dry:
            ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, tensor: DeviceTensor) -> npt.NDArray[np.float32]:
        """Copy a tensor from its place."""
        self.flush()
        out = np.empty(tensor.shape, np.float32)
        ctypes.memmove(out.ctypes.data, tensor.address, out.nbytes)
        return out

    def clear(self, tensor: DeviceTensor) -> None:
        """Fill with zeros."""
        self.flush()
        if not self.dry:
            ctypes.memset(tensor.address, 0, 4 * tensor.size)


def emulated_device() -> Device:
    """A card that is none."""
    streams = EmulatedStream(), None, EmulatedStream(late=True)
    return Device(0, "An emulated card", "sm_90", 8_192 * MIB, 4, *streams)


class EmulatedBench(Bench):
    """`Bench` without a card; every byte is a NaN at first."""

    def __init__(self, n_bytes: int = 16 * MIB) -> None:
        self.device = emulated_device()
        self.kept = np.full(2 * n_bytes + LINE, 0xFF, np.uint8)
        begin = -(-self.kept.ctypes.data // LINE) * LINE
        kernels: Any = EmulatedKernels()
        self.ops = EmulatedOps(self.device, kernels)
        self.ops.resident = DeviceWorkspace(begin, n_bytes)
        self.ops.workspace = DeviceWorkspace(begin + n_bytes, n_bytes)
        where, tokens = self.ops.resident.tensor(2), self.ops.resident.tensor(8)
        self.ops.step = StepState(where.address, tokens.address)
        self.stand(0)

    def close(self) -> None:
        """Nothing is to be given back."""
