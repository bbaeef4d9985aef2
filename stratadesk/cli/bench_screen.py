"""Runs the real app without a terminal and measures what it costs while an answer is written."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from textual import events
from textual.drivers.headless_driver import HeadlessDriver

from stratadesk.engine.commands import Command, EngineSettings, SamplingSettings
from stratadesk.engine.events import Event, Failure, ModelLoaded, RequestFinished
from stratadesk.engine.failures import error_of
from stratadesk.models import Discovery
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.ports import EnginePort

SIZE = (160, 50)
"""Columns and rows of the terminal that is pretended."""
KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
"""Letters that are in no answer, so that a frame that holds one answers a key."""
KEY_EVERY_S = 0.25
BEAT_S = 0.02
"""How often the app's thread is asked how late it is: asking takes CPU, too, of the same thread."""
SETTLE_S = 0.5
GIVE_UP_S = 120.0


@dataclass
class Measured:
    """What was seen: times in seconds, `cpu` of the app's thread, `written` characters."""

    seconds: float = 0.0
    cpu: float = 0.0
    frames: int = 0
    written: int = 0
    latencies: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)


class CountingDriver(HeadlessDriver):
    """Takes everything that a terminal would be sent, and counts it."""

    frames = 0
    written = 0
    _awaited = ""
    _seen: "asyncio.Future[float] | None" = None

    @property
    def is_headless(self) -> bool:
        """Have the app draw as if somebody looked."""
        return False

    def write(self, data: str) -> None:
        """Count what is written, and note when the awaited letter is among it."""
        self.written += len(data)
        if self._awaited and self._awaited in data:
            self._awaited = ""
            if self._seen is not None and not self._seen.done():
                self._seen.set_result(time.monotonic())

    def flush(self) -> None:
        """A frame is complete."""
        self.frames += 1

    async def press(self, letter: str) -> float:
        """Press a letter; return the seconds until a frame shows it.

        Raises:
            TimeoutError: none does.
        """
        self._awaited, self._seen = letter, asyncio.get_running_loop().create_future()
        pressed = time.monotonic()
        self.send_message(events.Key(letter, letter))
        return await asyncio.wait_for(self._seen, GIVE_UP_S) - pressed


class Overheard:
    """An engine and what it says; the last answer, model and failure are kept to be looked at."""

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine
        self.loaded: ModelLoaded | None = None
        self.finished: RequestFinished | None = None
        self.failure: Failure | None = None

    @property
    def events(self) -> "Overheard":
        """The outgoing queue."""
        return self

    def drain(self) -> list[Event]:
        """Return all unread events."""
        unread = self._engine.events.drain()
        for event in unread:
            if isinstance(event, ModelLoaded):
                self.loaded = event
            elif isinstance(event, RequestFinished):
                self.finished = event
            elif isinstance(event, Failure):
                self.failure = event
        return unread

    def next_change(self) -> float | None:
        """Return when the first unread change of a phase happened."""
        return self._engine.events.next_change()

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Call `listener` when there is something to read."""
        self._engine.events.set_listener(listener)

    def start(self) -> None:
        """Start the engine."""
        self._engine.start()

    def send(self, command: Command) -> None:
        """Hand over a command."""
        self._engine.send(command)

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the engine."""
        self._engine.stop(timeout)


@asynccontextmanager
async def answering(
    engine: EnginePort, model: Path, settings: EngineSettings, limit: int, prompt: str
) -> AsyncIterator[tuple[CountingDriver, Overheard]]:
    """Run the app with a model loaded and the prompt just sent.

    Raises:
        StrataDeskError: what has failed by the end.
    """
    overheard = Overheard(engine)
    sampling = SamplingSettings(temperature=0.0)
    app = StrataDeskApp(overheard, model, limit, settings, sampling, lambda: Discovery([], []))
    app.driver_class = CountingDriver
    task = asyncio.create_task(app.run_async(size=SIZE))
    try:
        await until(lambda: overheard.loaded or overheard.failure)
        _raise_failure(overheard)
        await asyncio.sleep(SETTLE_S)
        driver = app._driver
        assert isinstance(driver, CountingDriver)
        driver.send_message(events.Paste(prompt))
        await asyncio.sleep(SETTLE_S)
        driver.send_message(events.Key("enter", "\r"))
        yield driver, overheard
        _raise_failure(overheard)
    finally:
        app.exit()
        await task


def _raise_failure(overheard: Overheard) -> None:
    if overheard.failure is not None:
        raise error_of(overheard.failure)


async def measure(driver: CountingDriver, finished: Callable[[], object]) -> Measured:
    """Measure until `finished`, pressing a key four times a second."""
    measured = Measured()
    frames, written = driver.frames, driver.written
    began, cpu = time.monotonic(), time.thread_time()
    beat = asyncio.create_task(_beat(measured.stalls))
    for letter in cycle(KEYS):
        if finished():
            break
        measured.latencies.append(await driver.press(letter))
        await asyncio.sleep(KEY_EVERY_S)
    beat.cancel()
    with suppress(asyncio.CancelledError):
        await beat
    measured.seconds = time.monotonic() - began
    measured.cpu = time.thread_time() - cpu
    measured.frames, measured.written = driver.frames - frames, driver.written - written
    return measured


async def until(condition: Callable[[], object], every: float = BEAT_S) -> None:
    """Wait until `condition` holds; raises TimeoutError after `GIVE_UP_S` seconds."""
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(every)


async def _beat(stalls: list[float]) -> None:
    """Note how late the app's thread is, again and again."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(BEAT_S)
        stalls.append(time.monotonic() - before - BEAT_S)
