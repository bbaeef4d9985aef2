"""A card that stops answering: which errors say so, and how the process gets it back.

CUDA keeps a fatal error for as long as the context lives; every call fails with it. The context is
the process's, and so is what is known here. The thread that computes is the only one to ask.
"""

import gc
import logging
from collections.abc import Callable
from contextlib import suppress

from stratadesk.errors import DeviceError, DeviceLostError

FATAL = frozenset(
    {
        100,  # no device: it was unplugged or switched off
        201,  # the context is not valid
        214,  # memory error that cannot be corrected
        304,  # the operating system's call failed
        700,  # illegal address
        702,  # a launch ran into the watchdog
        709,  # the context was destroyed
        710,  # assertion in a kernel
        714,  # hardware stack
        715,  # illegal instruction
        716,  # misaligned address
        717,  # invalid address space
        718,  # invalid program counter
        719,  # launch failure: also a driver that was reset
        999,  # unknown
    }
)
"""cudaError values (those of CUresult are the same) after which a context is of no use."""

log = logging.getLogger(__name__)


class _Loss:
    """Whether the process's card is lost, and what is to be released once it is back."""

    def __init__(self) -> None:
        self.happened = False
        self._unreleased: list[Callable[[], None]] = []

    def note(self, sentence: str) -> DeviceLostError:
        """Remember that the card is lost; return the error to raise."""
        if not self.happened:
            log.error("%s", sentence)
        self.happened = True
        return DeviceLostError(sentence)

    def release_later(self, release: Callable[[], None]) -> None:
        """Call `release` once the card is back, for what does not go with the context."""
        self._unreleased.append(release)

    def bring_back(self, index: int) -> None:
        """Destroy the context of card `index` if that was lost, and make a new one.

        No object that belongs to the old one may be in use.

        Raises:
            DeviceLostError: the card does not come back in this process.
        """
        if not self.happened:
            return
        # Streams, graphs and modules still waiting to be collected belong to the old context.
        gc.collect()
        refused = _reset(index)
        if refused:
            raise DeviceLostError(
                f"The graphics card could not be reset: {refused}.",
                "Start StrataDesk again; if that fails too, restart the machine.",
            )
        self.happened = False
        while self._unreleased:
            with suppress(DeviceError):
                self._unreleased.pop()()


def _reset(index: int) -> str:
    """Replace the process's context on card `index`; why that failed, or nothing."""
    from cupy.cuda import runtime

    try:
        from cuda.bindings import driver
    except ImportError as missing:
        return f"cuda-bindings is not installed ({missing})"
    status, device = driver.cuDeviceGet(index)
    if not int(status):
        (status,) = driver.cuDevicePrimaryCtxReset(device)
    if int(status):
        return str(status.name)
    try:
        runtime.setDevice(index)
        runtime.free(0)
    except runtime.CUDARuntimeError as refused:
        return str(refused)
    return ""


LOSS = _Loss()
"""That of this process."""
