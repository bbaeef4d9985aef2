"""A model of a few lines in place of the real one: it says what a rule tells it to say.

Its state remembers every token it was given, so a test can compare what was really read with
what the engine believes it holds.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratadesk.engine.protocols import LogitsWanted
from stratadesk.engine.vram.plan_settings import Layout

Rule = Callable[[Sequence[int]], int]


@dataclass
class FakeState:
    """All tokens of one sequence."""

    tokens: list[int] = field(default_factory=list)

    @property
    def position(self) -> int:
        return len(self.tokens)


class Script:
    """A rule that says the given ids one after the other, whatever was read, then `end`."""

    def __init__(self, ids: Iterable[int], end: int) -> None:
        self._ids = list(ids)
        self._end = end

    def __call__(self, tokens: Sequence[int]) -> int:
        return self._ids.pop(0) if self._ids else self._end


class Gate:
    """Holds the engine thread inside `forward` until the test lets a number of calls through.

    Open for every call until `shut` is called.
    """

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._shut = False
        self._entered = threading.Semaphore(0)

    def shut(self) -> None:
        """Hold every call from now on."""
        self._shut = True

    def let_through(self, calls: int = 1) -> None:
        """Allow that many calls."""
        self._permits.release(calls)

    def open(self) -> None:
        """Hold no call any more."""
        self._shut = False
        self._permits.release(1_000)

    def wait_for_call(self) -> None:
        """Wait until one more call has come to the gate."""
        assert self._entered.acquire(timeout=60), "the engine did not call the model"

    def pass_through(self) -> None:
        """Called by the model."""
        if self._shut:
            self._entered.release()
            assert self._permits.acquire(timeout=60), "the test did not open the gate"


@dataclass(frozen=True)
class FakeReading:
    """How the fake reads every prompt."""

    chunk: int
    path: str = "prompt"
    layout: Layout | None = None
    slots_lent: int = 0
    head_out: bool = False
    seconds: float = 0.0
    why: str = "the fake reads all prompts so"


class FakeModel:
    """Computes one-hot logits of what `rule` says follows the tokens read.

    `calls` are the chunks it was given. `failures` maps the number of a call, from 0, to the
    exception it raises instead of answering. `before_call` is called with each chunk. `checks`
    counts how often it was asked whether its card is there; `missing` is what it answers.
    With `forgets` its states lose a token per call; with `poisoned` its logits are no numbers.
    """

    def __init__(self, rule: Rule, vocab_size: int, context: int = 1_000) -> None:
        self.rule = rule
        self.vocab_size = vocab_size
        self.context = context
        self.calls: list[list[int]] = []
        self.requests: list[str] = []
        self.chunk = 16
        self.failures: dict[int, Exception] = {}
        self.states: list[FakeState] = []
        self.before_call: Callable[[Sequence[int]], None] = lambda tokens: None
        self.checks = 0
        self.missing: Exception | None = None
        self.gate = Gate()
        self.forgets = False
        self.closed = False
        self.poisoned = False
        self.name = "Fake"
        self.architecture = "qwen3moe"
        self.device = "host"
        self.file_bytes = 1_000
        self.kv_bytes = 2_000
        self.state_bytes = 3_000

    @property
    def state(self) -> FakeState:
        """The state made last."""
        return self.states[-1]

    def new_state(self) -> FakeState:
        self.states.append(FakeState())
        return self.states[-1]

    def forward(
        self, state: FakeState, tokens: Sequence[int], *, logits: LogitsWanted
    ) -> NDArray[np.float32] | None:
        self.gate.pass_through()
        self.before_call(tokens)
        number = len(self.calls)
        self.calls.append(list(tokens))
        state.tokens.extend(tokens)
        assert state is self.state, "a state that was dropped is used again"
        assert state.position <= self.context, "more tokens than the context holds"
        if number in self.failures:
            raise self.failures[number]
        answer = self._logits(state) if logits == "last" else None
        if self.forgets:
            state.tokens.pop()
        return answer

    def begin_request(self, fresh: int) -> FakeReading:
        self.requests.append(f"begin {fresh}")
        return FakeReading(self.chunk)

    def end_request(self) -> None:
        self.requests.append("end")

    def recover(self) -> None:
        self.requests.append("recover")

    def check(self) -> None:
        self.checks += 1
        if self.missing is not None:
            raise self.missing

    def close(self) -> None:
        self.closed = True

    def _logits(self, state: FakeState) -> NDArray[np.float32]:
        logits = np.zeros(self.vocab_size, np.float32)
        logits[self.rule(state.tokens)] = np.nan if self.poisoned else 1.0
        return logits
