"""A card that stops answering: which errors say so, and what that means for the process.

CUDA keeps a fatal error for as long as the process lives: resetting the device or making another
context gives the same error again. So only another process can use the card. The thread that
computes is the only one to ask.
"""

import ctypes
import logging
import sys
from weakref import WeakSet

from stratadesk.errors import DeviceLostError

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
"""cudaError values (those of CUresult are the same) after which a process cannot use the card."""

log = logging.getLogger(__name__)


class _Loss:
    """Whether the process's card is lost, and what must not be freed any more if it is."""

    def __init__(self) -> None:
        self.why = ""
        """What happened, as the end of a sentence about the card; empty while all is well."""
        self._owners: WeakSet[object] = WeakSet()
        self._quiet = False

    def note(self, why: str) -> DeviceLostError:
        """Remember that the card is lost; return the error to raise.

        `why` ends a sentence about the card: "stopped answering while computing: ...".
        """
        if not self.why:
            log.error("the card %s", why)
            self._keep_owners()
            self.why = why
        return DeviceLostError(f"The graphics card {why}.")

    def check(self) -> None:
        """Raise DeviceLostError if the card is lost."""
        if self.why:
            raise DeviceLostError(f"The graphics card is lost to this process: it {self.why}.")

    def watch(self, owner: object) -> None:
        """Free `owner`, which holds CuPy's modules or graphs, only while the card answers.

        CuPy would try to destroy them, and print a traceback for each.
        """
        self._owners.add(owner)

    def stay_quiet(self) -> None:
        """Let CuPy's events and streams be freed without a word although the card is lost.

        Python tells on standard error what a destructor raises; an event may be freed within the
        very call that finds the card lost.
        """
        if self._quiet:
            return
        self._quiet, usual = True, sys.unraisablehook

        def tell(raised: "sys.UnraisableHookArgs", fatal: frozenset[int] = FATAL) -> None:
            status = getattr(raised.exc_value, "status", None)
            if status is None or not (self.why or status in fatal):
                usual(raised)

        sys.unraisablehook = tell

    def _keep_owners(self) -> None:
        """Keep them beyond the end of the interpreter, which frees whatever is only referred to."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(self._owners)))


LOSS = _Loss()
"""That of this process."""
