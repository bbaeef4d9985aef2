"""Guards against layers that take more launches than they need."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.architectures import family
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.kernels.cuda.device import Device
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.kernels.cuda.programs import Program
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWorkspace
from stratadesk.units import GIB, MIB
from tools.bench_layers import VOCABULARY, EmptyTable, Header

MOST = {"delta net": 11, "attention": 14}


class Counting(CudaOps):
    """Counts launches and makes none."""

    def _launch(
        self, program: Program, name: str, grid: tuple[int, ...], threads: int, *arguments: Any
    ) -> None:
        self.flush()
        self.launches += 1

    def upload(self, address: int, data: npt.NDArray[Any]) -> None:
        self.flush()

    def clear(self, tensor: DeviceTensor) -> None:
        self.flush()


def launches(count: int, form: str, *, recurrent: bool, tokens: int) -> int:
    """Kernels of a pass through `count` layers of the 35B-A3B shape."""
    ops: Any = Counting(Device(0, "None", "sm_90", 1, 132, None), {})  # type: ignore[arg-type]
    space, ops.resident = DeviceWorkspace(0, 99 * GIB), DeviceWorkspace(0, 99 * GIB)
    ops.workspace = DeviceWorkspace(0, 256 * MIB)
    ops.step = StepState(0, 0)
    header = Hyperparameters(Header(count, recurrent=recurrent))  # type: ignore[arg-type]
    model: Any = family("qwen35moe")(header, EmptyTable(ops, space, form), VOCABULARY)
    states = [layer.mixer.new_state(ops, 4_096, "F16") for layer in model.layers]
    ops.flush()
    before: int = ops.launches
    with ops.scope():
        chunk = model.chunk(ops, 0, tokens)
        x = ops.embed(model.embedding, np.zeros(tokens, np.int32))
        for layer, state in zip(model.layers, states, strict=True):
            model.advance(ops, x, layer, chunk, state)
        ops.flush()
    return int(ops.launches) - before


@pytest.mark.parametrize("form", ["Q4_K", "IQ4_XS"])
@pytest.mark.parametrize("recurrent", [True, False])
def test_a_layer_of_the_35b_shape_is_few_kernels(form: str, *, recurrent: bool) -> None:
    few, many = (launches(count, form, recurrent=recurrent, tokens=1) for count in (2, 6))
    print(f"{(many - few) / 4} kernels a layer")
    assert 8 <= (many - few) / 4 <= MOST["delta net" if recurrent else "attention"]
