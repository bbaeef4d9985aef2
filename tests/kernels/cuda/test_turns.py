"""Guards against kernels that begin before the one in front of them is done."""

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from stratadesk.errors import DeviceError
from stratadesk.kernels.cuda import bindings, programs
from stratadesk.kernels.cuda.bindings import launch_early

KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\([^()]*\)\s*)?(\w+)\(")


@pytest.mark.parametrize("program", programs.everything(), ids=lambda program: str(program.name))
def test_every_kernel_that_may_be_started_early_takes_its_turn(program: programs.Program) -> None:
    text = re.sub(r"\s*\\?\n\s*", " ", program.text())
    kernels = list(KERNEL.finditer(text))
    assert kernels
    ends = [kernel.start() for kernel in kernels[1:]] + [len(text)]
    turns = ["take_turn();" in text[k.start() : end] for k, end in zip(kernels, ends, strict=True)]
    assert all(turns) if program.overlaps else not any(turns)


class _Launches:
    """What the driver was asked for; `status` is its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
        from cuda.bindings import driver

        self.config: Any = None
        self.values: list[bytes] = []
        self._status = driver.CUresult(status)
        monkeypatch.setattr(driver, "cuLaunchKernelEx", self._launch)

    def _launch(self, config: Any, function: Any, values: int, extra: int) -> tuple[Any]:
        self.config, self.function = config, int(function)
        places = (ctypes.c_void_p * 3).from_address(values)
        self.values = [ctypes.string_at(place, 8) for place in places]
        assert extra == 0
        return (self._status,)


def test_what_an_early_launch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _Launches(monkeypatch)
    values = (np.uint64(1 << 40), np.int32(-7), np.float32(1.5))
    launch_early(0x1234, (5, 2), 96, values, 0x99)
    config = seen.config
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (5, 2, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (96, 1, 1)
    assert (seen.function, int(config.hStream)) == (0x1234, 0x99)
    assert [raw[: value.nbytes] for raw, value in zip(seen.values, values, strict=True)] == [
        value.tobytes() for value in values
    ]
    (attribute,) = config.attrs
    kinds = bindings.driver_functions().CUlaunchAttributeID
    assert attribute.id == kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert attribute.value.programmaticStreamSerializationAllowed == 1


def test_a_refused_launch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _Launches(monkeypatch, status=1)
    with pytest.raises(DeviceError, match="failed while starting a kernel"):
        launch_early(1, (1,), 32, (np.int32(1),) * 3, 0)
