"""The queue between the engine thread and whoever shows what it says.

It holds little however long nobody reads: latest-value events replace each other and adjacent
text is joined, so what piles up is a handful of events per request.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from stratadesk.engine.events import LATEST_VALUE, Event, PhaseChanged, TextDelta
from stratadesk.engine.vram.phase_table import VramPhase

CAPACITY = 4096
"""Unread events beyond which a producer waits for the reader."""
PATIENCE_S = 1.0
"""Seconds a producer waits for room before it goes on over capacity."""
JOINED_TEXT = 16_384
"""Characters after which joined text starts a new event, so that joining stays cheap."""

log = logging.getLogger(__name__)


class EventQueue:
    """Events in order, for one producer and one reader, each on any thread.

    - An event of a type in `LATEST_VALUE` takes the place of an unread one of the same type and
      request. It moves to the end: it is newer than all that is queued before it.
    - A `TextDelta` is joined to an unread one of the same request and channel, unless an event
      that is not of a latest value was put between them.
    - All others are kept each, and in order. With `capacity` unread events the producer waits up
      to `patience_s` for room; then the event is queued all the same: the bound slows a producer
      down, it never loses an event and never blocks the engine for good.
    """

    def __init__(self, capacity: int = CAPACITY, patience_s: float = PATIENCE_S) -> None:
        self._capacity = capacity
        self._patience_s = patience_s
        self._unread: dict[int, Event] = {}
        self._latest: dict[tuple[type[Event], int | None], int] = {}
        self._open_text: int | None = None
        self._next_place = 0
        self._listener: Callable[[], None] | None = None
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return how many events are unread."""
        with self._changed:
            return len(self._unread)

    def put(self, event: Event) -> None:
        """Queue `event`; wakes a waiting `get` and, if the queue was empty, the listener."""
        with self._changed:
            if self._joined(event):
                return
            replaces = self._forget_older(event)
            if not replaces:
                self._wait_for_room()
            was_empty = not (replaces or self._unread)
            self._append(event)
            self._changed.notify_all()
            listener = self._listener if was_empty else None
        if listener is not None:
            listener()

    def get(self, timeout: float | None = None) -> Event | None:
        """Take the oldest event; wait for one up to `timeout` seconds (None: for ever).

        Returns None when none came in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._unread), timeout):
                return None
            place = next(iter(self._unread))
            event = self._unread.pop(place)
            self._forget_place(event, place)
            self._changed.notify_all()
            return event

    def drain(self) -> list[Event]:
        """Take all unread events at once, oldest first; never waits."""
        with self._changed:
            events = list(self._unread.values())
            self._unread.clear()
            self._latest.clear()
            self._open_text = None
            self._changed.notify_all()
            return events

    def next_change(self) -> float | None:
        """Return when the first unread change of a phase happened; None where none is unread.

        In seconds of `time.monotonic()`: that long lasted the phase of which the reader knows.
        """
        with self._changed:
            unread = self._unread.values()
            return next((e.at for e in unread if isinstance(e, (PhaseChanged, VramPhase))), None)

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have `listener` called whenever the queue goes from empty to not empty.

        It is called on the producer's thread, outside the lock, and must neither block nor
        raise; it is not called again before the queue has been emptied. Events that are already
        there are announced at once.
        """
        with self._changed:
            self._listener = listener
            waiting = bool(self._unread)
        if listener is not None and waiting:
            listener()

    def _joined(self, event: Event) -> bool:
        if self._open_text is None or not isinstance(event, TextDelta):
            return False
        before = self._unread[self._open_text]
        if not (isinstance(before, TextDelta) and _same_stream(before, event)):
            return False
        if len(before.text) >= JOINED_TEXT:
            return False
        self._unread[self._open_text] = replace(before, text=before.text + event.text)
        return True

    def _forget_older(self, event: Event) -> bool:
        place = self._latest.pop(_latest_key(event), None)
        if place is None:
            return False
        del self._unread[place]
        return True

    def _wait_for_room(self) -> None:
        def has_room() -> bool:
            return len(self._unread) < self._capacity

        if not self._changed.wait_for(has_room, self._patience_s):
            log.warning("%d events are unread and nobody reads them", len(self._unread))

    def _append(self, event: Event) -> None:
        place = self._next_place
        self._next_place += 1
        self._unread[place] = event
        if isinstance(event, LATEST_VALUE):
            self._latest[_latest_key(event)] = place
        else:
            self._open_text = place if isinstance(event, TextDelta) else None

    def _forget_place(self, event: Event, place: int) -> None:
        if isinstance(event, LATEST_VALUE):
            del self._latest[_latest_key(event)]
        if self._open_text == place:
            self._open_text = None


def _latest_key(event: Event) -> tuple[type[Event], int | None]:
    return type(event), getattr(event, "request_id", None)


def _same_stream(one: TextDelta, other: TextDelta) -> bool:
    return (one.request_id, one.channel) == (other.request_id, other.channel)
