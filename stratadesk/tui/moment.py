"""The one clock of the app's widgets, so that a test can hold it still."""

import time


def now() -> float:
    """Return seconds of the clock that engine events carry."""
    return time.monotonic()
