"""Drives the engine through one model load and one answer, and keeps Ctrl+C in hand."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

from stratadesk.engine.commands import Cancel, Command, Generate, LoadModel
from stratadesk.engine.events import (
    EngineStopped,
    Event,
    Failure,
    FinishReason,
    ModelLoaded,
    RequestFinished,
    RequestStarted,
)
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode

POLL_S = 0.1
"""How long a wait for an event lasts: on Windows, Ctrl+C is only seen between waits."""


class Events(Protocol):
    """The reading end of the engine's event queue."""

    def get(self, timeout: float | None = None) -> Event | None:
        """Take the oldest event, or None after `timeout` seconds without one."""


class AnsweringEngine(Protocol):
    """What is needed of `engine.loop.Engine`."""

    @property
    def events(self) -> Events:
        """What the engine says."""

    def start(self) -> None:
        """Start the engine thread."""

    def send(self, command: Command) -> None:
        """Put a command into the engine's queue."""

    def stop(self, timeout: float = 10.0) -> object:
        """End the engine thread, waiting for it up to `timeout` seconds."""


class View(Protocol):
    """What is shown of an answer."""

    def show(self, event: Event) -> None:
        """Take note of one event."""

    def close(self) -> None:
        """Leave the terminal in order, however the answer ended."""


class OneAnswer:
    """One model, one request; every event goes to the view."""

    def __init__(self, engine: AnsweringEngine, view: View) -> None:
        self._engine = engine
        self._view = view
        self._cancelled = False

    def execute(self, load: LoadModel, request: Generate) -> int:
        """Load, answer, and return the exit code.

        Ctrl+C while the model loads raises KeyboardInterrupt; while it answers it cancels the
        request, and only a second one raises.
        """
        patience_s = 0.0
        self._engine.start()
        try:
            with closing(self._view):
                self._engine.send(load)
                end = self._show_until(ModelLoaded)
                if isinstance(end, ModelLoaded):
                    self._engine.send(request)
                    end = self._answer(request.request_id)
            patience_s = 10.0
            return exit_code_of(end)
        finally:
            self._engine.stop(timeout=patience_s)

    def _answer(self, request_id: int) -> Event:
        started = self._show_until(RequestStarted)
        if not isinstance(started, RequestStarted):
            return started
        with first_interrupt_calls(self._cancel):
            return self._show_until(RequestFinished, request_id)

    def _cancel(self) -> None:
        self._cancelled = True

    def _show_until(self, kind: type[Event], request_id: int | None = None) -> Event:
        while True:
            if self._cancelled and request_id is not None:
                self._engine.send(Cancel(request_id))
                self._cancelled = False
            event = self._engine.events.get(timeout=POLL_S)
            if event is None:
                continue
            self._view.show(event)
            if isinstance(event, (kind, RequestFinished, Failure, EngineStopped)):
                return event


def exit_code_of(end: Event) -> int:
    """Return the exit code of a command whose last event was `end`."""
    if isinstance(end, Failure):
        return end.exit_code
    if isinstance(end, RequestFinished):
        cancelled = end.finish_reason is FinishReason.CANCELLED
        return ExitCode.INTERRUPTED if cancelled else ExitCode.OK
    raise StrataDeskError(
        "The engine stopped before the answer was complete.",
        "Try again; stratadesk paths tells where the log with the details is.",
    )


@contextmanager
def first_interrupt_calls(action: Callable[[], None]) -> Iterator[None]:
    """Have the first Ctrl+C call `action` instead of raising; later ones raise as usual."""

    def on_interrupt(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        action()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
