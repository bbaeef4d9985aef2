"""An engine on a fake model with a real tokenizer and real templates, driven by commands."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stratadesk.engine.byte_level import BYTE_OF_CHAR
from stratadesk.engine.chat_template import ChatTemplate
from stratadesk.engine.commands import Command, Generate, LoadModel, Message, SamplingSettings
from stratadesk.engine.events import (
    Channel,
    Event,
    Failure,
    Phase,
    PhaseChanged,
    RequestFinished,
    RequestStarted,
    TextDelta,
)
from stratadesk.engine.loop import Engine
from stratadesk.engine.protocols import PhaseSink, ProgressSink
from stratadesk.engine.request import Request
from stratadesk.engine.runtime import Runtime
from stratadesk.engine.session import Session
from stratadesk.engine.tokenizer import Tokenizer, TokenizerSpec
from tests.engine.fake_model import FakeModel, Script

CONTROL, USER_DEFINED = 3, 4
SPECIAL = {
    "<|im_start|>": CONTROL,
    "<|im_end|>": CONTROL,
    "<|endoftext|>": CONTROL,
    "<|tool|>": CONTROL,
    "<think>": USER_DEFINED,
    "</think>": USER_DEFINED,
}
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ hello")
MODEL = Path("fake.gguf")
GREEDY = SamplingSettings(temperature=0.0)
TIMEOUT = 60.0

E = TypeVar("E")


def make_tokenizer() -> Tokenizer:
    """A byte-level vocabulary with a few merges and the markers of ChatML."""
    stand_ins = sorted(BYTE_OF_CHAR, key=lambda char: BYTE_OF_CHAR[char])
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*stand_ins, *merged, *SPECIAL]
    types = [1] * (len(stand_ins) + len(merged)) + list(SPECIAL.values())
    return Tokenizer(
        TokenizerSpec(
            pre="qwen2",
            tokens=tokens,
            merges=MERGES,
            token_types=types,
            eos_id=tokens.index("<|im_end|>"),
        )
    )


def ask(content: str, request_id: int = 1, **fields: Any) -> Generate:
    """A request of one user message, greedy."""
    return chat([Message("user", content)], request_id, **fields)


def chat(messages: Iterable[Message], request_id: int = 1, **fields: Any) -> Generate:
    """A request of several messages, greedy unless told otherwise."""
    return Generate(request_id, messages=tuple(messages), **{"sampling": GREEDY, **fields})


def raw(prompt: str, request_id: int = 1, **fields: Any) -> Generate:
    """A request whose prompt goes through no template, greedy unless told otherwise."""
    return Generate(request_id, raw_prompt=prompt, **{"sampling": GREEDY, **fields})


def of_type(events: Iterable[Event], kind: type[E]) -> list[E]:
    """The events of one type."""
    return [event for event in events if isinstance(event, kind)]


def phases(events: Iterable[Event]) -> list[Phase]:
    """The phases entered, in order."""
    return [event.phase for event in of_type(events, PhaseChanged)]


def said(events: Iterable[Event], channel: Channel = Channel.ANSWER) -> str:
    """All text of one channel."""
    return "".join(e.text for e in of_type(events, TextDelta) if e.channel is channel)


class Desk:
    """An engine under test. Its `model` is the fake one loaded last."""

    def __init__(
        self,
        *,
        template: str | None = None,
        context: int = 1_000,
        chunk: int = 16,
        engine: dict[str, Any] | None = None,
        control: Any = None,
    ) -> None:
        self.control = control
        self.tokenizer = make_tokenizer()
        self.end = self.id_of("<|im_end|>")
        self.template = template
        self.context = context
        self.chunk = chunk
        self.loaded: list[FakeModel] = []
        self.load_failure: Exception | None = None
        self.while_loading: Callable[[ProgressSink], None] = lambda progress: None
        self.engine = Engine(self.open, **(engine or {}))
        self._numbers = itertools.count(1)

    @property
    def model(self) -> FakeModel:
        return self.loaded[-1]

    def open(self, command: LoadModel, progress: ProgressSink, phases: PhaseSink) -> Runtime:
        """Stands in for `open_runtime`."""
        self.while_loading(progress)
        if self.load_failure is not None:
            raise self.load_failure
        model = FakeModel(Script([], self.end), self.tokenizer.vocab_size, self.context)
        model.chunk = self.chunk
        self.loaded.append(model)
        return Runtime(
            path=command.path,
            model=model,
            tokenizer=self.tokenizer,
            template=ChatTemplate(self.template),
            session=Session(model),
            load_s=0.5,
            control=self.control,
        )

    def id_of(self, marker: str) -> int:
        """The id of a special token."""
        token = self.tokenizer.special_id(marker)
        assert token is not None
        return token

    def ids(self, text: str) -> list[int]:
        """The ids of a text with its markers parsed."""
        return self.tokenizer.encode(text, parse_special=True)

    def will_say(self, text: str, *, then_end: bool = True) -> list[int]:
        """Have the model say `text` and end; returns the ids it will say."""
        ids = self.ids(text) + ([self.end] if then_end else [])
        self.model.rule = Script(ids, self.end)
        return ids

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.engine.send(command)

    def next(self, *kinds: type[Event]) -> list[Event]:
        """Read events up to and including the first of one of `kinds`."""
        return self.until(lambda event: isinstance(event, kinds))

    def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        """Read events up to and including the first that is `wanted`."""
        events: list[Event] = []
        deadline = time.monotonic() + TIMEOUT
        while not (events and wanted(events[-1])):
            event = self.engine.events.get(max(0.0, deadline - time.monotonic()))
            assert event is not None, f"no such event came within {TIMEOUT} s; came: {events}"
            events.append(event)
        return events

    def rest(self) -> list[Event]:
        """Read events up to and including the one that says that the engine is at rest."""
        at_rest = (Phase.READY, Phase.EMPTY)
        return self.until(lambda e: isinstance(e, PhaseChanged) and e.phase in at_rest)

    def load(self) -> list[Event]:
        """Load a model and return the events up to READY."""
        self.send(LoadModel(MODEL))
        return self.rest()

    def run(self, command: Command) -> list[Event]:
        """Send a job and return all events until the engine is at rest again."""
        self.send(command)
        return self.rest()

    def answer(self, command: Generate) -> RequestFinished:
        """Run a request and return its result."""
        finished = of_type(self.run(command), RequestFinished)
        assert len(finished) == 1
        return finished[0]

    def started(self, command: Generate) -> RequestStarted:
        """Run a request and return what it said about its prompt."""
        return of_type(self.run(command), RequestStarted)[0]

    def failure(self, command: Command) -> Failure:
        """Run a job that fails and return how."""
        return of_type(self.run(command), Failure)[0]


@contextmanager
def desk(**settings: Any) -> Iterator[Desk]:
    """A running engine with a loaded fake model; stopped at the end, leaving no thread."""
    with empty_desk(**settings) as made:
        made.load()
        yield made


@contextmanager
def empty_desk(**settings: Any) -> Iterator[Desk]:
    """A running engine without a model; its first phase is already read."""
    made = Desk(**settings)
    made.engine.start()
    try:
        made.rest()
        yield made
    finally:
        for model in made.loaded:
            model.gate.open()
        made.engine.stop()
    assert "engine" not in {thread.name for thread in threading.enumerate()}


class Bench:
    """Requests run step by step without an engine thread, under a clock that tests move."""

    def __init__(self, **settings: Any) -> None:
        self.desk = Desk(**settings)
        self.runtime = self.desk.open(LoadModel(MODEL), lambda progress: None, lambda phase: None)
        self.model = self.desk.model
        self.now = 0.0

    def request(self, command: Generate) -> tuple[Request, list[Event]]:
        """A request that has begun, and the list that its events go to."""
        events: list[Event] = []
        request = Request(command, self.runtime, events.append, lambda: self.now)
        request.begin()
        return request, events

    def run(self, command: Generate) -> list[Event]:
        """All events of a request."""
        request, events = self.request(command)
        while not request.finished:
            request.step()
        self.runtime.session.verify()
        return events

    def answer(self, command: Generate) -> RequestFinished:
        """The result of a request."""
        return of_type(self.run(command), RequestFinished)[0]

    def started(self, command: Generate) -> RequestStarted:
        """What a request said about its prompt."""
        return of_type(self.run(command), RequestStarted)[0]

    def will_say(self, text: str, *, then_end: bool = True) -> list[int]:
        """Have the model say `text` and end; returns the ids it will say."""
        return self.desk.will_say(text, then_end=then_end)

    def ids(self, text: str) -> list[int]:
        """The ids of a text with its markers parsed."""
        return self.desk.ids(text)
