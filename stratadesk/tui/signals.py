"""Leaving properly when the system asks for it."""

import asyncio
import signal
from collections.abc import Callable


def on_termination(leave: Callable[[], None]) -> None:
    """Call `leave` in the running event loop when the process is told to terminate or hang up.

    Does nothing where event loops take no signals: on Windows, and outside the main thread.
    """
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, leave)
        except (NotImplementedError, RuntimeError, ValueError):
            return
