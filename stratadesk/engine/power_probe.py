"""Whether the machine runs on battery, and why its card runs slower, read every few seconds."""

import time
from collections.abc import Callable

import psutil

from stratadesk.engine.card_events import PowerSample

INTERVAL_S = 5.0
"""Seconds between two samples."""

Throttling = Callable[[], tuple[str, ...] | None]
"""Names the card's reasons for lower clocks; None when no driver tells."""


def no_driver() -> None:
    """There is no card whose driver could tell."""


def sample_power(throttling: Throttling = no_driver) -> PowerSample:
    """Read the battery and the card's reasons."""
    # psutil leaves the function out on systems on which it cannot tell.
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is None or battery.power_plugged is None:
        return PowerSample(None, None, throttling())
    return PowerSample(not battery.power_plugged, float(battery.percent), throttling())


class PowerProbe:
    """Takes a sample when one is due and gives it when it is news; the first is due at once.

    It wakes nobody: power changes slowly, and whoever asks is awake for other reasons.
    """

    def __init__(
        self,
        read: Callable[[], PowerSample] = sample_power,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._due_at = clock()
        self._last: PowerSample | None = None

    def take_if_news(self) -> PowerSample | None:
        """Return a fresh sample if it differs from the last one."""
        now = self._clock()
        if now < self._due_at:
            return None
        self._due_at = now + INTERVAL_S
        before, self._last = self._last, self._read()
        return self._last if self._last != before else None
