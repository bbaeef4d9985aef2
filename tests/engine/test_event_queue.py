"""Guards against a queue that grows while nobody reads, or that loses or reorders what is said.

A screen that sleeps must find one sample instead of ten thousand, and every character of text.
"""

import logging
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratadesk.engine.event_queue import JOINED_TEXT, EventQueue
from stratadesk.engine.events import (
    LATEST_VALUE,
    Channel,
    DecodeProgress,
    Event,
    LoadProgress,
    MemorySample,
    Phase,
    PhaseChanged,
    PromptProgress,
    TextDelta,
)


def sample(resident: int) -> MemorySample:
    return MemorySample(resident, 0, 0)


def text(said: str, request_id: int = 1, channel: Channel = Channel.ANSWER) -> TextDelta:
    return TextDelta(request_id, channel, said)


def decoded(tokens: int, request_id: int = 1) -> DecodeProgress:
    return DecodeProgress(request_id, tokens, 0, 0.0, 0, 0)


def ready(at: float) -> PhaseChanged:
    return PhaseChanged(Phase.READY, at)


def filled(*events: Event) -> EventQueue:
    queue = EventQueue()
    for event in events:
        queue.put(event)
    return queue


def test_ten_thousand_samples_leave_one() -> None:
    queue = filled(*(sample(i) for i in range(10_000)))
    assert queue.drain() == [sample(9_999)]


def test_a_latest_value_moves_behind_what_was_said_before_it() -> None:
    queue = filled(sample(1), ready(1.0), sample(2))
    assert queue.drain() == [ready(1.0), sample(2)]


def test_progress_of_another_request_is_kept() -> None:
    queue = filled(decoded(1, request_id=1), decoded(1, request_id=2), decoded(2, request_id=2))
    assert queue.drain() == [decoded(1, request_id=1), decoded(2, request_id=2)]


def test_latest_values_of_different_types_are_kept_apart() -> None:
    events: list[Event] = [
        LoadProgress("Reading", 1, 2, "bytes"),
        PromptProgress(1, 1, 0, 2, 0.0, 1),
    ]
    assert filled(*events).drain() == events


def test_a_value_that_was_read_is_not_replaced() -> None:
    queue = filled(sample(1))
    assert queue.get(0) == sample(1)
    queue.put(sample(2))
    assert queue.drain() == [sample(2)]


def test_adjacent_text_is_joined() -> None:
    assert filled(text("Hel"), text("lo")).drain() == [text("Hello")]


@pytest.mark.parametrize(
    "other", [text("b", request_id=2), text("b", channel=Channel.THINKING), ready(0.0)]
)
def test_text_is_not_joined_across(other: Event) -> None:
    assert filled(text("a"), other, text("c")).drain() == [text("a"), other, text("c")]


def test_text_is_joined_across_progress() -> None:
    queue = filled(text("a"), decoded(1), text("b"), decoded(2), text("c"))
    assert queue.drain() == [text("abc"), decoded(2)]


def test_text_that_was_read_is_not_said_again() -> None:
    queue = filled(text("a"))
    assert queue.get(0) == text("a")
    queue.put(text("b"))
    assert queue.drain() == [text("b")]


def test_long_text_starts_a_new_event() -> None:
    half = "x" * (JOINED_TEXT // 2 + 1)
    assert filled(*[text(half)] * 3).drain() == [text(half * 2), text(half)]


def test_an_unread_answer_of_fifty_thousand_tokens_stays_small() -> None:
    queue = EventQueue()
    for i in range(50_000):
        queue.put(text("word "))
        queue.put(decoded(i))
    assert len(queue) < 20
    said = [event.text for event in queue.drain() if isinstance(event, TextDelta)]
    assert "".join(said) == "word " * 50_000


EVENTS = st.one_of(
    st.builds(text, st.text(max_size=3), st.integers(1, 2), st.sampled_from(Channel)),
    st.builds(sample, st.integers(0, 9)),
    st.builds(decoded, st.integers(0, 9), st.integers(1, 2)),
    st.builds(ready, st.floats(0, 9)),
)


def streams(events: list[Event]) -> dict[tuple[int, Channel], str]:
    said: dict[tuple[int, Channel], str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            key = event.request_id, event.channel
            said[key] = said.get(key, "") + event.text
    return {key: whole for key, whole in said.items() if whole}


def last_values(events: list[Event]) -> dict[object, Event]:
    return {
        (type(event), getattr(event, "request_id", None)): event
        for event in events
        if isinstance(event, LATEST_VALUE)
    }


@given(st.lists(st.one_of(EVENTS, st.none()), max_size=40))
def test_no_text_no_phase_and_no_last_value_is_lost(script: list[Event | None]) -> None:
    """None in the script stands for a reader taking one event."""
    queue = EventQueue()
    put: list[Event] = []
    got: list[Event] = []
    for event in script:
        if event is not None:
            queue.put(event)
            put.append(event)
        elif (taken := queue.get(0)) is not None:
            got.append(taken)
    got += queue.drain()
    assert streams(got) == streams(put)
    assert last_values(got) == last_values(put)
    kept = [event for event in got if isinstance(event, PhaseChanged)]
    assert kept == [event for event in put if isinstance(event, PhaseChanged)]


def test_get_waits_for_an_event_and_not_for_ever() -> None:
    queue = EventQueue()
    assert queue.get(timeout=0.01) is None
    producer = threading.Timer(0.01, queue.put, [ready(1.0)])
    producer.start()
    assert queue.get(timeout=60) == ready(1.0)
    producer.join()


def test_the_listener_is_called_when_the_queue_stops_being_empty() -> None:
    queue = EventQueue()
    calls: list[int] = []
    queue.set_listener(lambda: calls.append(len(queue)))
    for event in (text("a"), text("b"), ready(0.0), sample(1), sample(2)):
        queue.put(event)
    assert calls == [1], "one wake-up for all that nobody has read yet"
    queue.drain()
    queue.put(sample(3))
    assert calls == [1, 1]


def test_replacing_the_only_unread_value_wakes_nobody() -> None:
    queue = EventQueue()
    calls: list[int] = []
    queue.set_listener(lambda: calls.append(1))
    for i in range(100):
        queue.put(sample(i))
    assert len(calls) == 1


def test_a_late_listener_hears_of_what_is_already_there() -> None:
    queue = filled(ready(0.0))
    calls: list[int] = []
    queue.set_listener(lambda: calls.append(1))
    assert calls == [1]
    queue.set_listener(None)


def test_the_listener_may_read_the_queue() -> None:
    queue = EventQueue()
    got: list[Event] = []
    queue.set_listener(lambda: got.extend(queue.drain()))
    queue.put(ready(0.0))
    queue.put(ready(1.0))
    assert got == [ready(0.0), ready(1.0)]


def test_a_full_queue_holds_the_producer_until_the_reader_makes_room() -> None:
    queue = EventQueue(capacity=2, patience_s=60)
    queue.put(ready(0.0))
    queue.put(ready(1.0))
    producer = threading.Thread(target=queue.put, args=[ready(2.0)])
    producer.start()
    producer.join(0.05)
    assert producer.is_alive(), "a put beyond the bound waits"
    assert queue.get(0) == ready(0.0)
    producer.join(10)
    assert not producer.is_alive()
    assert queue.drain() == [ready(1.0), ready(2.0)]


def test_an_abandoned_queue_loses_nothing_and_blocks_nobody_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = EventQueue(capacity=2, patience_s=0.01)
    with caplog.at_level(logging.WARNING):
        for i in range(4):
            queue.put(ready(float(i)))
    assert queue.drain() == [ready(float(i)) for i in range(4)]
    assert "nobody reads" in caplog.text


def test_values_and_text_pass_a_full_queue_at_once() -> None:
    queue = EventQueue(capacity=2, patience_s=60)
    for event in (sample(0), text("a"), text("b"), sample(1), text("c")):
        queue.put(event)
    assert queue.drain() == [text("abc"), sample(1)]


def hammered(queue: EventQueue, read: Callable[[], list[Event]]) -> list[Event]:
    def produce() -> None:
        for i in range(2_000):
            queue.put(text(f"{i} "))
            queue.put(sample(i))
        queue.put(ready(0.0))

    producer = threading.Thread(target=produce)
    producer.start()
    got: list[Event] = []
    while ready(0.0) not in got[-3:]:
        got += read()
    producer.join()
    return got


def test_reading_one_by_one_while_writing_loses_nothing() -> None:
    queue = EventQueue()
    got = hammered(queue, lambda: [event] if (event := queue.get(10)) is not None else [])
    assert streams(got)[1, Channel.ANSWER] == "".join(f"{i} " for i in range(2_000))


def test_a_listener_that_drains_misses_nothing() -> None:
    queue = EventQueue()
    woken = threading.Event()
    queue.set_listener(woken.set)

    def read() -> list[Event]:
        assert woken.wait(60), "events were put and the listener was not called"
        woken.clear()
        return queue.drain()

    got = hammered(queue, read)
    assert streams(got)[1, Channel.ANSWER] == "".join(f"{i} " for i in range(2_000))


def test_the_first_unread_change_of_a_phase_tells_how_long_the_one_before_lasted() -> None:
    queue = filled(text("a"), sample(1))
    assert queue.next_change() is None
    queue.put(ready(2.5))
    queue.put(ready(4.0))
    assert queue.next_change() == 2.5
    queue.drain()
    assert queue.next_change() is None
