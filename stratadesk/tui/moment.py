"""The one clock of the app's widgets, so that a test can hold it still."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def now() -> float:
    """Return seconds of the clock that engine events carry."""
    return time.monotonic()


def read() -> float:
    """Return `now()` as it is at the time of the call, for those that keep a clock."""
    return now()
