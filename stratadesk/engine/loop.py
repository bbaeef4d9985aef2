"""The engine: one thread owns the model; commands go in, events come out."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import (
    Cancel,
    CancelLoad,
    Command,
    Generate,
    LoadModel,
    PreviewReserve,
    SetHeadAlias,
    SetReserve,
    Shutdown,
)
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import EngineStopped, LoadCancelled, LoadProgress, Phase
from stratadesk.engine.failures import failure_of
from stratadesk.engine.load_report import OPENING, LoadReport
from stratadesk.engine.memory_probe import MemoryProbe
from stratadesk.engine.phases import Phases
from stratadesk.engine.power_probe import PowerProbe
from stratadesk.engine.protocols import CanBeLost, PhaseSink, ProgressSink
from stratadesk.engine.request import Request, never_started
from stratadesk.engine.runtime import Runtime, open_runtime
from stratadesk.errors import DeviceLostError, StrataDeskError, UsageError

Opener = Callable[[LoadModel, ProgressSink, PhaseSink], Runtime]

AFTER_FAILURE = "the last request failed, and what it had read was dropped"
MODEL_AGAIN = "the model was loaded again"
MODEL_OTHER = "another model was loaded"

SWITCH_S = 0.0005
"""How long another thread may keep the interpreter from this one, seconds.

A card waits for its next step once that is queued later than the step before it takes. Python's
usual 5 ms cost 6 % of 590 tokens/s under the screen, this much 0.5 %.
"""

SLEEP_S = 30.0
"""A gap between two looks at the clock after which the machine may have slept."""

log = logging.getLogger(__name__)


class _Abandoned(Exception):
    """Loading was given up: it was cancelled, another model is wanted, or the engine is to end."""


class Engine:
    """Loads models and answers requests on a thread of its own.

    `LoadModel` and `Generate` are jobs, done one after the other in the order in which they were
    sent: a `Generate` sent while another runs waits for it. `Cancel` and `Shutdown` act between
    two steps of the running job, a step being one prompt chunk or one token; a request that is
    cancelled while it waits finishes at once. Loading ends early, at its next report, for a
    `Shutdown`, a `CancelLoad`, or a `LoadModel` that is next in line; what it took is given back.

    A failure of any job becomes a `Failure` event, and the engine goes on: with the model it
    had, or without one when loading failed. An answer that failed takes what the model had read
    with it, so that nothing half-computed is ever reused. A card that is lost takes its model
    with it: `DeviceLost` says so. What is loaded onto that card afterwards fails in the same way;
    only another process can use it.

    Every `PhaseChanged` comes from here. A `MemorySample` comes once a second, as far as a step
    lets it, a `PowerSample` when power has changed. The last event is `EngineStopped`.
    """

    def __init__(
        self,
        opener: Opener = open_runtime,
        *,
        probe: MemoryProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.events = EventQueue()
        self._opener = opener
        self._probe = probe or MemoryProbe(clock=clock)
        self._power = PowerProbe(clock=clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._looked_at = wall_clock()
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._jobs: deque[LoadModel | Generate] = deque()
        self._runtime: Runtime | None = None
        self._request: Request | None = None
        self._chat_lost: Path | None = None
        self._closing = False
        self._load_unwanted = False
        self._phases = Phases(self.events.put, self._phase_at_rest, clock)
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread; once per engine.

        From then on the process's threads take turns every SWITCH_S at the latest.
        """
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command and return at once; from any thread."""
        self._commands.put(command)

    def stop(self, timeout: float = 10.0) -> None:
        """Cancel what runs or waits, release the model, and end the thread.

        Waits up to `timeout` seconds for it. A step cannot be interrupted: a thread that is in a
        longer one ends after it, or with the process.
        """
        if self._thread.ident is None:
            return
        self.send(Shutdown())
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the engine is still busy after %.0f s", timeout)

    def _phase_at_rest(self) -> Phase:
        return Phase.READY if self._runtime is not None else Phase.EMPTY

    def _work(self) -> None:
        try:
            self._phases.settle()
            while not self._closing:
                self._attend_at_rest()
                with self._contained("The check of the card"):
                    self._check_after_sleep()
                self._phases.settle()
                if self._jobs and not self._closing:
                    self._do(self._jobs.popleft())
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._contained("Releasing the model"):
            while self._jobs:
                self._withdraw(self._jobs.popleft())
            self._release()
        self.events.put(EngineStopped())

    def _attend_at_rest(self) -> None:
        """Attend between two jobs, when a sample may be the first to find the card lost."""
        try:
            self._attend(wait=not self._jobs)
        except DeviceLostError as error:
            log.warning("the card was found lost: %s", error)
            self._tell_failure(error, "The check of the card", None)

    def _attend(self, *, wait: bool = False) -> None:
        """Obey all commands there are; with `wait`, wait for one until a sample is due."""
        timeout = self._seconds_to_wait() if wait else 0.0
        while (command := self._next_command(timeout)) is not None:
            self._obey(command)
            timeout = 0.0
        sample = self._probe.take_if_due()
        if sample is not None:
            self.events.put(sample)
        power = self._power.take_if_news()
        if power is not None:
            self.events.put(power)
        if self._runtime is not None and self._runtime.control is not None:
            self._runtime.control.attend()

    def _check_after_sleep(self) -> None:
        """Ask a card that a sleeping machine may have lost, before anything is started on it."""
        before, self._looked_at = self._looked_at, self._wall_clock()
        slept = self._looked_at - before > SLEEP_S
        if slept and self._runtime is not None and isinstance(self._runtime.model, CanBeLost):
            log.info("the clock has jumped: checking the card")
            self._runtime.model.check()

    def _seconds_to_wait(self) -> float:
        """Seconds until the next sample of RAM or of the card is due."""
        control = self._runtime.control if self._runtime is not None else None
        card = control.seconds_left() if control is not None else None
        own = self._probe.seconds_left()
        return own if card is None else min(own, card)

    def _next_command(self, timeout: float) -> Command | None:
        try:
            return self._commands.get(timeout=timeout)
        except queue.Empty:
            return None

    def _obey(self, command: Command) -> None:
        match command:
            case Shutdown():
                self._closing = True
            case Cancel(request_id):
                self._cancel(request_id)
            case CancelLoad():
                self._cancel_loads()
            case LoadModel() | Generate():
                self._jobs.append(command)
            case PreviewReserve() | SetReserve() | SetHeadAlias():
                self._adjust(command)

    def _cancel(self, request_id: int) -> None:
        if self._request is not None and self._request.command.request_id == request_id:
            self._request.cancelled = True
        for job in tuple(self._jobs):
            if isinstance(job, Generate) and job.request_id == request_id:
                self._jobs.remove(job)
                self._withdraw(job)

    def _cancel_loads(self) -> None:
        self._load_unwanted = True
        for job in tuple(self._jobs):
            if isinstance(job, LoadModel):
                self._jobs.remove(job)
                self._withdraw(job)

    def _adjust(self, command: PreviewReserve | SetReserve | SetHeadAlias) -> None:
        try:
            self._apply(command)
        except StrataDeskError as error:
            log.warning("a setting was refused: %s", error)
            self.events.put(failure_of(error, "The change", None, self._runtime))

    def _apply(self, command: PreviewReserve | SetReserve | SetHeadAlias) -> None:
        control = self._runtime.control if self._runtime is not None else None
        if control is None:
            raise UsageError(
                "There is no card whose memory could be shared out differently.",
                "Load a model with --vram-mib to simulate one.",
            )
        match command:
            case PreviewReserve():
                control.preview_reserve(command.reserve)
            case SetReserve():
                control.set_reserve(command.reserve)
            case SetHeadAlias():
                control.set_alias(command.alias)

    def _withdraw(self, job: LoadModel | Generate) -> None:
        if isinstance(job, Generate):
            self.events.put(never_started(job.request_id, self._runtime))
        else:
            self.events.put(LoadCancelled(job.path.name))

    def _do(self, job: LoadModel | Generate) -> None:
        if isinstance(job, LoadModel):
            doing = f"Loading {job.path.name}"
            with self._phases.busy(Phase.LOADING), self._contained(doing, job):
                self._load(job)
        else:
            with self._phases.busy(Phase.PROMPT), self._contained("The answer", job):
                self._answer(job)

    @contextmanager
    def _contained(self, doing: str, job: Generate | LoadModel | None = None) -> Iterator[None]:
        """Turn what the `with` block raises into a `Failure` event; the thread goes on."""
        try:
            yield
        except StrataDeskError as error:
            log.warning("%s failed: %s", doing, error)
            self._tell_failure(error, doing, job)
        except Exception as error:
            log.exception("%s failed", doing)
            if self._runtime is not None:
                self._runtime.session.drop(AFTER_FAILURE)
            self._tell_failure(error, doing, job)

    def _tell_failure(self, error: Exception, doing: str, job: Generate | LoadModel | None) -> None:
        self._phases.enter(Phase.FAILED)
        failure = failure_of(error, doing, job, self._runtime)
        lost = isinstance(error, DeviceLostError)
        if lost:
            self.events.put(DeviceLost(self._clock(), failure.sentence))
            self._give_up_model()
        if job is not None or not lost:
            self.events.put(failure)

    def _load(self, command: LoadModel) -> None:
        begun = self._clock()
        self._load_unwanted = False
        self._release()
        try:
            self._runtime = self._open(command)
        except _Abandoned:
            log.info("loading %s ended early, after %.1f s", command.path, self._clock() - begun)
            if self._load_unwanted:
                self._withdraw(command)
            return
        if self._chat_lost is not None:
            again = self._chat_lost == command.path
            self._runtime.session.lost = MODEL_AGAIN if again else MODEL_OTHER
            self._chat_lost = None
        self.events.put(self._runtime.describe())

    def _open(self, command: LoadModel) -> Runtime:
        with ExitStack() as undo:
            LoadReport(self._tell_loading, command.path.name).step(OPENING)
            runtime = self._opener(command, self._tell_loading, self.events.put)
            undo.callback(runtime.close)
            self._attend_while_loading()
            undo.pop_all()
        return runtime

    def _tell_loading(self, progress: LoadProgress) -> None:
        self.events.put(progress)
        self._attend_while_loading()

    def _attend_while_loading(self) -> None:
        self._attend()
        other_is_next = bool(self._jobs) and isinstance(self._jobs[0], LoadModel)
        if self._closing or self._load_unwanted or other_is_next:
            raise _Abandoned

    def _release(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            if runtime.session.turn is not None:
                self._chat_lost = runtime.path
            runtime.close()

    def _give_up_model(self) -> None:
        """Release the model of a card that is lost, and with it what it had read."""
        if self._runtime is not None:
            path = self._runtime.path
            self._release()
            self._chat_lost = path

    def _answer(self, command: Generate) -> None:
        if self._runtime is None:
            raise UsageError("No model is loaded.", "Load one, then ask again.")
        self._request = Request(command, self._runtime, self.events.put, self._clock)
        try:
            with self._runtime.session.dropped_on_failure(AFTER_FAILURE):
                self._drive(self._request)
        finally:
            self._request = None

    def _drive(self, request: Request) -> None:
        request.begin()
        while not request.finished:
            self._attend()
            self._check_after_sleep()
            if request.cancelled or self._closing:
                self._phases.enter(Phase.CANCELLING)
                request.cancel()
            else:
                self._phases.enter(request.phase)
                request.step()
