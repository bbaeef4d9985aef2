"""From the engine's thread into the app: one listener, at most 20 reads a second."""

import logging
import time
from collections.abc import Callable

from stratadesk.engine.events import Event, Failure, LoadCancelled, ModelLoaded, RequestFinished
from stratadesk.tui import moment
from stratadesk.tui.pauses import CalmCollector
from stratadesk.tui.ports import EventSource

SHORTEST_S = 0.05
LONGEST_S = 0.8
CORE_SHARE = 0.05
PEACE_S = 1.0
"""Seconds after an answer at which nobody minds a pause."""

log = logging.getLogger(__name__)


class Bridge:
    """Lets the app read the engine's events in batches on its own thread.

    `wake` is called on the engine's thread and must only post a message; the app answers it
    with `read`. `later` calls back on the app's thread after a delay in seconds.

    Reads are spaced so that what the app does with them, drawing included, takes no more than
    `CORE_SHARE` of one core, as far as `LONGEST_S` allows: on a CPU the engine wants the rest.
    What is not read yet is joined in the queue. While the bridge is open, garbage is collected
    when a model has been loaded, or was not loaded after all, and after answers, not in the middle
    of them.
    """

    def __init__(
        self,
        source: EventSource,
        wake: Callable[[], object],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._source = source
        self._wake = wake
        self._later = later
        self._next_read = float("-inf")
        self._cpu_at_read = 0.0
        self._waiting = False
        self._collector = CalmCollector()

    def open(self) -> None:
        """Listen from now on; what is already queued is announced."""
        self._cpu_at_read = time.thread_time()
        self._collector.begin()
        self._source.set_listener(self._notify)

    def close(self) -> None:
        """Listen no more."""
        self._source.set_listener(None)
        self._collector.end()

    def read(self) -> tuple[Event, ...]:
        """Return all unread events; nothing, but a wake to come, when it is too early."""
        if self._waiting:
            return ()
        now = time.monotonic()
        if now < self._next_read:
            self._waiting = True
            self._later(self._next_read - now, self._due)
            return ()
        self._next_read = now + self._spacing(idle=now - self._next_read)
        events = tuple(self._source.drain())
        for event in events:
            if _ends_loading(event):
                self._collector.spare_the_loaded()
            elif isinstance(event, RequestFinished):
                self._later(PEACE_S, self._collector.collect)
        return events

    def phase_time(self) -> float:
        """Return now, or until when the phase that was read last has lasted if it is over."""
        change = self._source.next_change()
        return moment.now() if change is None else min(change, moment.now())

    def _spacing(self, idle: float) -> float:
        cpu = time.thread_time()
        spent, self._cpu_at_read = cpu - self._cpu_at_read, cpu
        if idle > LONGEST_S:
            return SHORTEST_S
        return min(max(spent / CORE_SHARE, SHORTEST_S), LONGEST_S)

    def _due(self) -> None:
        self._waiting = False
        self._wake()

    def _notify(self) -> None:
        try:
            self._wake()
        except Exception:
            # The engine's thread must survive whatever state the app is in, closing included.
            log.exception("the app could not be told of new events")


def _ends_loading(event: Event) -> bool:
    failed = isinstance(event, Failure) and event.loading
    return failed or isinstance(event, (ModelLoaded, LoadCancelled))
