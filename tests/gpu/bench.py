"""Single operations on the card, on poisoned memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.cuda.cubins import CubinStore, Kernels
from stratadesk.kernels.cuda.device import open_device
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.kernels.cuda.programs import everything
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight, DeviceWorkspace
from stratadesk.units import MIB

SPACE = 256 * MIB


class Bench:
    """The card with all kernels and two workspaces, every byte of which is a NaN at first."""

    def __init__(self, kernels: Kernels) -> None:
        self.device = open_device()
        self.memory = CudaMemory(self.device, 2 * MIB, poison=True)
        self.memory.allocate(2 * SPACE)
        self.ops = CudaOps(self.device, kernels)
        self.ops.resident = DeviceWorkspace(self.memory.address, SPACE)
        self.ops.workspace = DeviceWorkspace(self.memory.address + SPACE, SPACE)
        where, tokens = self.ops.resident.tensor(2), self.ops.resident.tensor(8)
        self.ops.step = StepState(where.address, tokens.address)
        self.stand(0)

    def stand(self, position: int, side: int = 0) -> None:
        """Say where the next pass begins."""
        self.ops.upload(self.ops.step.position, np.array([position, side], np.int32))

    def tensor(self, values: npt.NDArray[Any]) -> DeviceTensor:
        """Copy an array of 4-byte values to the card."""
        tensor = self.ops.resident.tensor(*values.shape)
        self.ops.upload(tensor.address, values)
        return tensor

    def weight(
        self, blocks: npt.NDArray[np.uint8], name: str, shape: tuple[int, ...]
    ) -> DeviceWeight:
        """Copy a matrix of blocks to the card."""
        address = self.ops.resident.take(blocks.size)
        self.ops.upload(address, blocks)
        return self.ops.weight(address, name, shape)

    def close(self) -> None:
        """Give the memory back."""
        self.memory.release()


def all_kernels(folder: Any) -> Kernels:
    """Every kernel, compiled if need be."""
    kernels = Kernels()
    kernels.load(everything(), CubinStore(folder, open_device().arch), lambda done, total: None)
    return kernels
