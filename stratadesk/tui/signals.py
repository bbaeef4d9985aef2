"""Leaving properly when the system asks for it."""

import asyncio
import signal
from collections.abc import Callable

ENDED_BY_SIGNAL = 128
"""What a shell adds to the number of the signal that ended a process."""


def on_termination(leave: Callable[[int], None]) -> None:
    """Call `leave` in the running event loop when the process is told to terminate or hang up.

    `leave` gets the exit code that a shell shows for a process which the signal ends. Does nothing
    where event loops take no signals: on Windows, and outside the main thread.
    """
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, leave, ENDED_BY_SIGNAL + number)
        except (NotImplementedError, RuntimeError, ValueError):
            return
