"""Guards against a card or driver that cannot be used and is not said to be, in one sentence."""

from collections.abc import Callable
from typing import Any

import cupy
import pytest
from cupy.cuda import runtime

from stratadesk.errors import DeviceError, DeviceLostError
from stratadesk.exit_codes import ExitCode
from stratadesk.kernels.cuda.device import BUSY, Device, open_device
from stratadesk.kernels.cuda.loss import LOSS

FACTS = {
    "name": b"A card",
    "major": 8,
    "minor": 9,
    "totalGlobalMem": 8 << 30,
    "multiProcessorCount": 24,
}


def fails(status: int) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise runtime.CUDARuntimeError(status)

    return refuse


@pytest.fixture(autouse=True)
def good_card(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in (
        ("driverGetVersion", lambda: 12_080),
        ("getDeviceCount", lambda: 1),
        ("setDevice", lambda _index: None),
        ("getDeviceProperties", lambda _index: FACTS),
        ("free", lambda _address: None),
        ("deviceGetPCIBusId", lambda _index: "0000:01:00.0"),
    ):
        monkeypatch.setattr(runtime, name, answer)
    monkeypatch.setattr(cupy.cuda, "Stream", lambda **_: "a stream")
    monkeypatch.setattr(cupy.cuda, "set_allocator", lambda _: None)
    monkeypatch.setattr(LOSS, "why", "")
    monkeypatch.setattr(LOSS, "_quiet", True)


def test_a_card_that_can_be_used() -> None:
    wanted = Device(0, "A card", "sm_89", 8 << 30, 24, "a stream", "0000:01:00.0", "a stream")
    assert open_device() == wanted


@pytest.mark.parametrize(
    ("major", "driver", "early", "overlaps"),
    [
        (8, 13_000, "", False),
        (9, 12_020, "", False),
        (12, 12_030, "", True),
        (9, 13_000, "0", False),
    ],
)
def test_kernels_start_early_where_card_and_driver_can_and_nobody_minds(
    monkeypatch: pytest.MonkeyPatch, major: int, driver: int, early: str, *, overlaps: bool
) -> None:
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda _: {**FACTS, "major": major})
    monkeypatch.setattr(runtime, "driverGetVersion", lambda: driver)
    monkeypatch.setenv("STRATADESK_EARLY", early)
    assert open_device().overlaps is overlaps


@pytest.mark.parametrize(
    ("name", "answer", "sentence", "remedy"),
    [
        ("driverGetVersion", lambda: 0, "There is no NVIDIA driver", "Install it"),
        ("driverGetVersion", lambda: 11_080, "supports CUDA 11.8, and 12.0", "Update the driver"),
        ("getDeviceCount", fails(100), "No NVIDIA card can be used: no CUDA-", "Install or update"),
        ("getDeviceCount", lambda: 0, "There are 0 NVIDIA cards", "Use --device host"),
        ("free", fails(BUSY), "is busy: another program has it for itself", "End that program"),
        (
            "getDeviceProperties",
            lambda _index: {**FACTS, "major": 6, "minor": 1},
            "A card has compute capability 6.1, and 7.5 is needed",
            "Use --device host",
        ),
    ],
)
def test_what_is_in_the_way_is_said(
    name: str, answer: Any, sentence: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, name, answer)
    with pytest.raises(DeviceError, match=sentence) as caught:
        open_device()
    assert remedy in caught.value.remedy
    assert caught.value.exit_code == ExitCode.NO_GPU


def test_a_card_that_was_lost_is_not_opened_again_by_this_process() -> None:
    LOSS.note("stopped answering while computing: launch failure")
    for _ in range(2):
        with pytest.raises(DeviceLostError) as caught:
            open_device()
        assert str(caught.value) == (
            "The graphics card is lost to this process: it stopped answering while computing: "
            "launch failure. Start StrataDesk again."
        )
        assert caught.value.exit_code == ExitCode.NO_GPU
