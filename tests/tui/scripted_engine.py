"""An engine that says what a test tells it to say, through the real event queue."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stratadesk.engine.commands import (
    Cancel,
    Command,
    EngineSettings,
    Generate,
    LoadModel,
    SamplingSettings,
)
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import (
    Channel,
    DecodeProgress,
    Event,
    Failure,
    FinishReason,
    LoadProgress,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    TextDelta,
    Timings,
)
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.options import USUAL, AppOptions
from stratadesk.tui.ports import ModelSearch
from stratadesk.units import GIB, MIB

MODEL = Path("models/demo-30b-a3b-iq4_xs.gguf")
CONTEXT = 32_768

Reply = Callable[[Command], Iterable[Event]]


@dataclass(frozen=True)
class Found:
    """A model found, as the search reports it."""

    name: str
    path: Path = MODEL
    store: str = "LM Studio"
    architecture: str = "qwen3moe"
    total_bytes: int = 17 * GIB
    shards: int = 1
    supported: bool = True
    why_not: str | None = None
    quantization: str = ""


@dataclass(frozen=True)
class Skipped:
    """A file passed over."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Place:
    """A folder that was searched."""

    name: str
    folder: Path


@dataclass(frozen=True)
class Search:
    """What a search found."""

    models: list[Found] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    searched: list[Place] = field(default_factory=list)


class ScriptedEngine:
    """Records commands; `reply` tells which events follow each, `say` adds more at any time."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.events = EventQueue()
        self.commands: list[Command] = []
        self.silent = False
        self.starts = 0
        self.stops = 0
        self._reply = reply or load_reply

    def start(self) -> None:
        """Count the start."""
        self.starts += 1

    def stop(self, timeout: float = 10.0) -> None:
        """Count the stop."""
        del timeout
        self.stops += 1

    def send(self, command: Command) -> None:
        """Record a command and say what the script has for it."""
        self.commands.append(command)
        if not self.silent:
            self.say(*self._reply(command))

    def say(self, *events: Event) -> None:
        """Put events into the queue."""
        for event in events:
            self.events.put(event)

    @property
    def requests(self) -> list[Generate]:
        """All requests so far."""
        return [command for command in self.commands if isinstance(command, Generate)]

    @property
    def cancels(self) -> list[Cancel]:
        """All cancels so far."""
        return [command for command in self.commands if isinstance(command, Cancel)]


def make_app(
    engine: ScriptedEngine,
    *,
    model: Path | None = MODEL,
    found: ModelSearch | None = None,
    settings: EngineSettings | None = None,
    options: AppOptions = USUAL,
) -> StrataDeskApp:
    """Return an app around `engine`."""
    return StrataDeskApp(
        engine,
        model,
        0,
        settings or EngineSettings(),
        SamplingSettings(),
        lambda: found or Search(),
        options,
    )


def phase(name: Phase) -> PhaseChanged:
    """A phase that begins now."""
    return PhaseChanged(name, time.monotonic())


def loading(done: int, total: int) -> tuple[Event, ...]:
    """Loading that compiles kernels."""
    progress = LoadProgress("Compiling kernels", done, total, "kernels", MODEL.stem, 17 * GIB)
    return phase(Phase.LOADING), progress


def loaded(*, name: str = "Demo 30B A3B", warnings: tuple[str, ...] = ()) -> tuple[Event, ...]:
    """A model that is ready, and a memory sample."""
    return (
        phase(Phase.LOADING),
        ModelLoaded(
            name=name,
            architecture="qwen3moe",
            path=str(MODEL),
            device="host",
            file_bytes=17 * GIB,
            context=CONTEXT,
            kv_bytes=640 * MIB,
            state_bytes=126 * MIB,
            load_s=3.2,
            template="model",
            thinks=True,
            warnings=warnings,
        ),
        phase(Phase.READY),
        MemorySample(19 * GIB, 7 * GIB, 32 * GIB),
    )


def load_reply(command: Command) -> tuple[Event, ...]:
    """Load any model at once; leave requests unanswered."""
    return loaded() if isinstance(command, LoadModel) else ()


def started(request_id: int, *, prompt: int = 64, reused: int = 0, note: str = "") -> Event:
    """The prompt is about to be read."""
    return RequestStarted(request_id, prompt, reused, note)


def reading(request_id: int, read: int, total: int, *, reused: int = 0) -> Event:
    """Part of the prompt is read, 1,000 tokens a second."""
    return PromptProgress(request_id, read, reused, total, read / 1000, 512)


def said(request_id: int, text: str, channel: Channel = Channel.ANSWER) -> Event:
    """A piece of the answer."""
    return TextDelta(request_id, channel, text)


def thought(request_id: int, text: str) -> Event:
    """A piece of thinking."""
    return said(request_id, text, Channel.THINKING)


def writing(request_id: int, tokens: int, *, thinking: int = 0, context: int = 128) -> Event:
    """Part of the answer is written, 20 tokens a second."""
    return DecodeProgress(request_id, tokens, thinking, tokens / 20, context, CONTEXT)


def finished(
    request_id: int,
    text: str,
    *,
    reasoning: str = "",
    reason: FinishReason = FinishReason.STOP,
    tokens: int = 3,
    prompt: int = 64,
    reused: int = 0,
    context: int = 128,
) -> Event:
    """The answer is complete."""
    timings = Timings(3.2, 0.064, 0.15, 1000.0, 20.0)
    return RequestFinished(
        request_id,
        reason,
        prompt,
        reused,
        tuple(range(tokens)),
        text,
        reasoning,
        timings,
        context,
        CONTEXT,
    )


def failure(request_id: int | None, *, offers_chatml: bool = False) -> Event:
    """A failure with all three parts."""
    return Failure(
        request_id,
        "Chat template failed",
        "The template stops at line 3: 'tools' is undefined.",
        "Answer with ChatML instead.",
        3,
        offers_chatml,
    )
