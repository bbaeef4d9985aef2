"""A UI that is called per token, or woken after it has closed, stalls or kills the engine."""

import threading
from collections.abc import Callable

from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import Event
from stratadesk.tui.bridge import LONGEST_S, Bridge
from tests.tui import scripted_engine as script


class Clockwork:
    """Stands in for the app: counts wakes, keeps what is to be called later."""

    def __init__(self) -> None:
        self.wakes = 0
        self.later: list[tuple[float, Callable[[], None]]] = []

    def wake(self) -> None:
        self.wakes += 1

    def schedule(self, delay: float, callback: Callable[[], None]) -> None:
        self.later.append((delay, callback))


def make() -> tuple[EventQueue, Clockwork, Bridge]:
    queue, clockwork = EventQueue(), Clockwork()
    return queue, clockwork, Bridge(queue, clockwork.wake, clockwork.schedule)


def test_events_from_before_are_announced() -> None:
    queue, clockwork, bridge = make()
    queue.put(script.said(1, "early"))
    bridge.open()
    assert clockwork.wakes == 1
    assert bridge.read() == (script.said(1, "early"),)


def test_a_burst_wakes_once_and_is_read_in_one_batch() -> None:
    queue, clockwork, bridge = make()
    bridge.open()
    for _ in range(1000):
        queue.put(script.said(1, "x"))
    assert clockwork.wakes == 1
    (event,) = bridge.read()
    assert event == script.said(1, "x" * 1000)


def test_a_second_read_waits_its_turn_and_loses_nothing() -> None:
    queue, clockwork, bridge = make()
    bridge.open()
    queue.put(script.said(1, "a"))
    bridge.read()
    queue.put(script.said(1, "b"))
    assert bridge.read() == ()
    assert bridge.read() == ()
    ((delay, due),) = clockwork.later
    assert 0 < delay <= LONGEST_S
    bridge._next_read = float("-inf")
    due()
    assert bridge.read() == (script.said(1, "b"),)


def test_a_broken_app_does_not_reach_the_engines_thread() -> None:
    queue = EventQueue()

    def broken() -> None:
        raise RuntimeError("Event loop is closed")

    Bridge(queue, broken, lambda _delay, _callback: None).open()
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            queue.put(script.said(1, "x"))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    assert errors == []
    drained: list[Event] = queue.drain()
    assert drained == [script.said(1, "x")]


def test_after_closing_nothing_wakes() -> None:
    queue, clockwork, bridge = make()
    bridge.open()
    bridge.close()
    queue.put(script.said(1, "x"))
    assert clockwork.wakes == 0
