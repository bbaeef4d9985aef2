"""The machine a plan is made for: card, RAM, operating system, and how fast it is.

Rates that were not measured are the documented ones of a laptop with an 8 GB card.
"""

import platform
import sys
from dataclasses import dataclass, field
from enum import StrEnum

from stratadesk.units import GIB, MIB


class System(StrEnum):
    """The operating system, as far as memory is concerned."""

    LINUX = "linux"
    WINDOWS = "windows"
    WSL = "wsl"


class DriverModel(StrEnum):
    """How the driver manages the card's memory; under WDDM it pages instead of failing."""

    LINUX = "linux"
    WDDM = "wddm"
    TCC = "tcc"
    MCDM = "mcdm"


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds, measured once per machine or given.

    `link` and `pageable` are bytes per second from pinned and from pageable host memory to the
    card, `read` bytes per second of the card's own memory, `compute` floating-point operations
    per second while a prompt is read.

    Defaults: 12.5 GB/s and 256 GB/s are DESIGN 5's laptop; 8.2 GB/s is one thread's copy out of
    the mapped file, measured there; 15 TFLOP/s makes such a laptop compute-bound above about
    3,000 tokens a chunk, the middle of DESIGN 4's "2,000-4,000".
    """

    link: float = 12.5e9
    pageable: float = 8.2e9
    read: float = 256e9
    compute: float = 15e12


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What there is, in bytes; None is unknown.

    `free` is what of the card is free for the engine, its CUDA context already taken off.
    Without it, `desktop` for other programs and `context` for the CUDA context are taken off
    `card`. `commit` is Windows' commit limit (RAM and page files). `pin_probe` is what a child
    process could pin.
    """

    card: int = 8151 * MIB
    free: int | None = None
    desktop: int = 700 * MIB
    context: int = 300 * MIB
    system: System = System.LINUX
    driver: DriverModel | None = None
    ram: int = 32 * GIB
    commit: int | None = None
    pin_probe: int | None = None
    rates: Rates = field(default_factory=Rates)

    @property
    def free_before(self) -> int:
        """Bytes free for arena and reserve together."""
        return self.card - self.desktop - self.context if self.free is None else self.free

    @property
    def driver_model(self) -> DriverModel:
        """The driver model: as given, else the usual one; beneath WSL there is WDDM."""
        if self.driver is not None:
            return self.driver
        return DriverModel.LINUX if self.system is System.LINUX else DriverModel.WDDM

    @property
    def page_file(self) -> int | None:
        """Bytes of page file behind the commit limit, None where it is unknown."""
        return None if self.commit is None else max(0, self.commit - self.ram)

    def pin_budget(self) -> int:
        """Bytes that may be pinned without asking too much (DESIGN 5).

        Linux: all that leaves 20 % of RAM. Windows and WSL: the smallest of 40 % of RAM, the
        commit limit less 4 GiB, and what a child process obtained.
        """
        if self.system is System.LINUX:
            return self.ram * 8 // 10
        limits = [self.ram * 4 // 10]
        if self.commit is not None:
            limits.append(max(0, self.commit - 4 * GIB))
        if self.pin_probe is not None:
            limits.append(self.pin_probe)
        return min(limits)


def this_system() -> System:
    """Tell which system this process runs on."""
    if sys.platform == "win32":
        return System.WINDOWS
    return System.WSL if "microsoft" in platform.release().lower() else System.LINUX
