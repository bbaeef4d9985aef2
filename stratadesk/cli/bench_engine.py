"""An engine that only talks: it writes a long Markdown answer at a fixed speed."""

import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice

from stratadesk.engine.commands import Cancel, Command, Generate, LoadModel, Shutdown
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import (
    Channel,
    DecodeProgress,
    EngineStopped,
    Event,
    FinishReason,
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
from stratadesk.units import GIB, MIB

CONTEXT = 32_768
PROMPT_TOKENS = 64
PROGRESS_EVERY_S, MEMORY_EVERY_S = 0.05, 1.0
"""As often as the real engine reports how far an answer is, and what RAM is left."""

CHAPTER = """\
## How an answer is written

Each token is read by a **router**, which names the *experts* that should see it. Those that lie in
video memory answer at once; the others are copied over the link first, which takes longer than all
the arithmetic of the token together. So what is kept where decides how quick an answer is.

1. The router scores all experts of the layer and keeps the best eight.
2. Experts that are not in a slot are fetched into one that has not been used for long.
3. Their results are weighted, summed and handed to the next layer.

- A slot holds one expert of one layer, `1.59 MiB` in this shape.
- Slots are lent while a prompt is read and filled again afterwards.
- What is left free is a reserve for other programs.

```python
def choose(scores: list[float], count: int) -> list[int]:
    order = sorted(range(len(scores)), key=lambda expert: -scores[expert])
    return order[:count]  # ties go to the lower number
```

| phase | head | slots lent | why |
| --- | --- | ---: | --- |
| prompt | out | 190 | its bytes hold the buffers |
| return | returning | 190 | checked against its sum |
| decode | in | 0 | needed for every token |

> What is measured here is the screen, not the model: every token is a word of this text.

"""


def words() -> Iterator[str]:
    """Go through the chapter's words for ever, blanks and line ends kept with them."""
    pieces = CHAPTER.replace("\n", " \n").split(" ")
    return (piece if piece.startswith("\n") else f" {piece}" for piece in cycle(pieces))


class TalkingEngine:
    """Answers each request with `tokens` words at `speed` tokens per second.

    It keeps to the clock: when it was held up, it catches up. `writing` is set while it writes.
    """

    def __init__(self, tokens: int, speed: float) -> None:
        self.events = EventQueue()
        self.writing = threading.Event()
        self.finished = threading.Event()
        self._tokens = tokens
        self._speed = speed
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Say that nothing is loaded."""
        self._say(PhaseChanged(Phase.EMPTY, time.monotonic()))

    def send(self, command: Command) -> None:
        """Load at once; answer on a thread of its own."""
        match command:
            case LoadModel():
                self._say(PhaseChanged(Phase.LOADING, time.monotonic()), loaded(), self._ready())
            case Generate():
                self._thread = threading.Thread(target=self._answer, args=(command.request_id,))
                self._thread.start()
            case Cancel() | Shutdown():
                self._stopping.set()

    def stop(self, timeout: float = 10.0) -> None:
        """End the answer and the events."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)
        self._say(EngineStopped())

    def _say(self, *events: Event) -> None:
        for event in events:
            self.events.put(event)

    def _ready(self) -> Event:
        return PhaseChanged(Phase.READY, time.monotonic())

    def _answer(self, request_id: int) -> None:
        self._say(
            PhaseChanged(Phase.PROMPT, time.monotonic()),
            RequestStarted(request_id, PROMPT_TOKENS, 0, ""),
            PromptProgress(request_id, PROMPT_TOKENS, 0, PROMPT_TOKENS, 0.1, PROMPT_TOKENS),
            PhaseChanged(Phase.DECODING, time.monotonic()),
        )
        self.writing.set()
        began = time.monotonic()
        written = self._write(request_id, began)
        self.writing.clear()
        seconds = time.monotonic() - began
        self._say(finished(request_id, written, seconds), self._ready())
        self.finished.set()

    def _write(self, request_id: int, began: float) -> list[str]:
        written: list[str] = []
        told = sampled = began
        for word in islice(words(), self._tokens):
            due = began + (len(written) + 1) / self._speed
            if self._stopping.wait(max(due - time.monotonic(), 0.0)):
                break
            written.append(word)
            self._say(TextDelta(request_id, Channel.ANSWER, word))
            now = time.monotonic()
            if now - told >= PROGRESS_EVERY_S:
                told = now
                self._say(progress(request_id, len(written), now - began))
            if now - sampled >= MEMORY_EVERY_S:
                sampled = now
                self._say(memory())
        return written


def loaded() -> ModelLoaded:
    """A model of the usual size, made up."""
    return ModelLoaded(
        name="Bench 30B A3B",
        architecture="qwen3moe",
        path="bench.gguf",
        device="host",
        file_bytes=17 * GIB,
        context=CONTEXT,
        kv_bytes=640 * MIB,
        state_bytes=0,
        load_s=1.0,
        template="model",
        thinks=False,
    )


def progress(request_id: int, tokens: int, seconds: float) -> DecodeProgress:
    """How far the answer is."""
    used = min(PROMPT_TOKENS + tokens, CONTEXT)
    return DecodeProgress(request_id, tokens, 0, seconds, used, CONTEXT)


def memory() -> MemorySample:
    """RAM, made up, a little different each time as it is in life."""
    return MemorySample(19 * GIB + time.monotonic_ns() % (64 * MIB), 7 * GIB, 32 * GIB)


def finished(request_id: int, written: list[str], seconds: float) -> RequestFinished:
    """The whole answer."""
    count = len(written)
    return RequestFinished(
        request_id,
        FinishReason.LENGTH,
        PROMPT_TOKENS,
        0,
        tuple(range(count)),
        "".join(written),
        "",
        Timings(1.0, 0.1, seconds, PROMPT_TOKENS / 0.1, count / max(seconds, 1e-9)),
        min(PROMPT_TOKENS + count, CONTEXT),
        CONTEXT,
    )
