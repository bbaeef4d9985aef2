"""Choosing and preparing the backend that computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.engine.commands import Device
from stratadesk.errors import DeviceError

if TYPE_CHECKING:
    from stratadesk.kernels.host.backend import HostOps


@dataclass(frozen=True, slots=True)
class Backend:
    """A device's operations. `prepare(formats, kv_format, progress, modules)` readies its kernels.

    `modules` are those that the family names. `kernels_kept` tells whether a run before has
    compiled some of them.
    """

    device: str
    ops: "HostOps"
    kernels_kept: bool
    prepare: Callable[[set[str], str, Callable[[int, int], None], Sequence[str]], None]


def choose_device(device: Device) -> Device:
    """Resolve `AUTO`. Raises DeviceError for CUDA, which this version does not compute on."""
    if device is Device.CUDA:
        raise DeviceError(
            "This version computes on the CPU only and cannot use --device cuda.",
            "Use --device host or leave the flag out.",
        )
    return Device.HOST


def open_backend(device: Device, cache_dir: Path) -> Backend:
    """Import the backend of a resolved `device`; compiled kernels are kept under `cache_dir`."""
    from stratadesk.kernels.host import compile_cache

    kept = compile_cache.configure(cache_dir)
    from stratadesk.kernels.host.backend import HostOps
    from stratadesk.kernels.host.warm_up import warm_up

    return Backend(device.value, HostOps(), kept, warm_up)
