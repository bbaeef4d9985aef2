"""Choosing and preparing the backend that computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.engine.commands import Device

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
    """Resolve `AUTO`: the host, until a card also reads prompts and streams experts."""
    return Device.HOST if device is Device.AUTO else device


def open_backend(device: Device, cache_dir: Path) -> Backend:
    """Import the backend of a resolved `device`; compiled kernels are kept under `cache_dir`.

    Raises `UsageError` for environment variables that Numba cannot work with.
    """
    from stratadesk.kernels.host import compile_cache, numba_environment

    kept = compile_cache.configure(cache_dir)
    numba_environment.check_threads()
    from stratadesk.kernels.host.backend import HostOps
    from stratadesk.kernels.host.warm_up import warm_up

    return Backend(device.value, HostOps(), kept, warm_up)
