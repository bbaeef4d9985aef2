"""An engine that computes nothing: it plays a recording and a script through the same port."""

import queue
import threading
import time
from collections.abc import Callable, Iterator

from stratadesk.demo.recorded_scene import RecordedScene
from stratadesk.demo.recording import Recording
from stratadesk.demo.scene import Scene, Step
from stratadesk.demo.scripted_scene import ScriptedScene
from stratadesk.engine.commands import (
    Cancel,
    Command,
    Generate,
    LoadModel,
    PreviewReserve,
    SetHeadAlias,
    SetReserve,
    Shutdown,
)
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import EngineStopped

IDLE_S = 0.5
"""Seconds between two samples while nothing is played."""


class ReplayEngine:
    """Plays the recording for the first question, the script for the second, and so on.

    Like the real one it has a thread of its own, which obeys commands between two events.
    """

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self.events = EventQueue()
        self._clock = clock
        self._scenes: tuple[Scene, ...] = (RecordedScene(recording, clock), ScriptedScene(clock))
        self._scene: Scene = self._scenes[0]
        self._turn = 0
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._steps: Iterator[Step] = iter(())
        self._next: Step | None = None
        self._due = 0.0
        self._request: int | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="replay", daemon=True)

    @property
    def question(self) -> str:
        """What fits to be asked next."""
        return self._scenes[self._turn].question

    def start(self) -> None:
        """Start the thread; once per engine."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command and return at once."""
        self._commands.put(command)

    def stop(self, timeout: float = 10.0) -> None:
        """End the thread, waiting at most `timeout` seconds."""
        if self._thread.ident is not None:
            self.send(Shutdown())
            self._thread.join(timeout)

    def _work(self) -> None:
        while not self._closing:
            due = self._due if self._next is not None else self._clock() + IDLE_S
            try:
                self._obey(self._commands.get(timeout=max(due - self._clock(), 0.0)))
            except queue.Empty:
                self._play_next()
        self.events.put(EngineStopped())

    def _obey(self, command: Command) -> None:
        match command:
            case Shutdown():
                self._closing = True
            case LoadModel():
                self._play(self._scene.load())
            case Generate(request_id):
                self._answer(request_id)
            case Cancel(request_id) if request_id == self._request:
                self._play(self._scene.cancel(request_id))
            case PreviewReserve() | SetReserve() | SetHeadAlias():
                for event in self._scene.change(command):
                    self.events.put(event)

    def _answer(self, request_id: int) -> None:
        scene, before = self._scenes[self._turn], self._scene
        self._scene, self._request = scene, request_id
        self._turn = (self._turn + 1) % len(self._scenes)
        self._play(_both(scene, request_id, load=scene is not before))

    def _play(self, steps: Iterator[Step]) -> None:
        self._steps, self._due = steps, self._clock()
        self._take_step()

    def _play_next(self) -> None:
        if self._next is None:
            for event in self._scene.idle():
                self.events.put(event)
            return
        self.events.put(self._next[1])
        self._take_step()

    def _take_step(self) -> None:
        self._next = next(self._steps, None)
        if self._next is not None:
            self._due += self._next[0]


def _both(scene: Scene, request_id: int, *, load: bool) -> Iterator[Step]:
    if load:
        yield from scene.load()
    yield from scene.answer(request_id)
