"""Run the app on an engine that only plays a script: for looking at the screens.

python tools/demo_tui.py [--pick] [--slow FACTOR]
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stratadesk.engine.commands import (
    Cancel,
    Command,
    EngineSettings,
    Generate,
    LoadModel,
    SamplingSettings,
    Shutdown,
)
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import (
    Channel,
    DecodeProgress,
    Event,
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
from stratadesk.tui.whole_pastes import whole_pastes
from stratadesk.units import GIB, MIB

CONTEXT = 32_768
NAME = "Qwen3.6 35B A3B IQ4_XS"
CHUNK = 512
TOKENS_PER_S = 25.0
PROMPT_TOKENS_PER_S = 900.0

THINKING = (
    "The user shows a build log and asks what failed first. The linker error at the end is a "
    "consequence: the first failure is the missing header. I should say which line, and how to "
    "fix it, without repeating the whole log."
)
ANSWER = """The **first failure** is on line 412, long before the linker gives up:

```c
#include <cuda_runtime.h>   // not found: the toolkit's include folder is not on the path
```

Everything after it follows from this one line:

1. `kernels.c` is skipped, because its header is missing.
2. `libkernels.a` is built *without* `launch_experts`.
3. The linker then reports 14 undefined symbols.

| step | took | result |
| --- | ---: | --- |
| configure | 3.1 s | ok |
| compile | 41.7 s | 1 error |
| link | 0.4 s | 14 errors |

Install the headers, or point the build at them:

```bash
cmake -B build -DCUDAToolkit_ROOT=/usr/local/cuda
```

Then build again; nothing else in the log is wrong.
"""


@dataclass(frozen=True)
class Found:
    """A model of the demo."""

    name: str
    architecture: str = "qwen3moe"
    total_bytes: int = 17 * GIB
    store: str = "LM Studio"
    shards: int = 1
    supported: bool = True
    why_not: str | None = None
    path: Path = Path("demo.gguf")
    quantization: str = ""


@dataclass(frozen=True)
class Skipped:
    """A file of the demo that is passed over."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Search:
    """The demo's search result."""

    models: list[Found] = field(
        default_factory=lambda: [
            Found("Qwen3.6 35B A3B IQ4_XS", "qwen35moe", 18 * GIB),
            Found("Qwen3 30B A3B Q4_K_M", store="Hugging Face", shards=2),
            Found(
                "Mixtral 8x7B",
                "llama",
                26 * GIB,
                "Ollama",
                supported=False,
                why_not="Architecture 'llama' is not among qwen35moe, qwen3moe, qwen3.",
            ),
        ]
    )
    skipped: list[Skipped] = field(
        default_factory=lambda: [
            Skipped(Path("~/.lmstudio/models/qwen/mmproj-f16.gguf"), "a vision projector"),
            Skipped(Path("~/.cache/llama.cpp/big-00001-of-00004.gguf"), "3 shards are missing"),
        ]
    )
    searched: tuple[()] = ()


class DemoEngine:
    """Plays scripts on a thread of its own, as fast as the real engine would on a laptop."""

    def __init__(self, slow: float) -> None:
        self.events = EventQueue()
        self._slow = slow
        self._stopping = threading.Event()
        self._held = 0

    def start(self) -> None:
        """Nothing to start: each script has its thread."""

    def stop(self, timeout: float = 10.0) -> None:
        """Let scripts end."""
        del timeout
        self._stopping.set()

    def send(self, command: Command) -> None:
        """Play the script for a command."""
        match command:
            case LoadModel():
                self._play(self._load())
            case Generate():
                self._play(self._answer(command))
            case Cancel() | Shutdown():
                self._stopping.set()

    def _play(self, script: Iterator[tuple[float, Event]]) -> None:
        self._stopping.clear()

        def play() -> None:
            for delay, event in script:
                self._stopping.wait(delay * self._slow)
                self.events.put(event)

        threading.Thread(target=play, daemon=True).start()

    def _load(self) -> Iterator[tuple[float, Event]]:
        yield 0.0, PhaseChanged(Phase.LOADING, time.monotonic())
        yield 0.0, MemorySample(1 * GIB, 24 * GIB, 32 * GIB)
        for done in range(13):
            yield 0.2, LoadProgress("Compiling kernels", done, 12, "kernels", NAME, 18 * GIB)
        yield (
            0.1,
            ModelLoaded(
                NAME,
                "qwen35moe",
                "demo.gguf",
                "host",
                18 * GIB,
                CONTEXT,
                640 * MIB,
                126 * MIB,
                2.6,
                "model",
                thinks=True,
            ),
        )
        yield 0.0, PhaseChanged(Phase.READY, time.monotonic())
        yield 0.0, MemorySample(19 * GIB, 7 * GIB, 32 * GIB)

    def _answer(self, request: Generate) -> Iterator[tuple[float, Event]]:
        fresh = 6_000 + len(request.messages[-1].content)
        prompt, reused = self._held + fresh, self._held
        note = "" if len(request.messages) < 4 else "message 2 was changed by the template"
        yield 0.0, PhaseChanged(Phase.PROMPT, time.monotonic())
        yield 0.1, RequestStarted(request.request_id, prompt, reused, note)
        read, began = 0, time.monotonic()
        while read < fresh and not self._stopping.is_set():
            seconds = time.monotonic() - began
            yield 0.0, PromptProgress(request.request_id, read, reused, prompt, seconds, CHUNK)
            yield CHUNK / PROMPT_TOKENS_PER_S, MemorySample(19 * GIB, 7 * GIB, 32 * GIB)
            read = min(read + CHUNK, fresh)
        prefill_s = time.monotonic() - began
        yield 0.0, PhaseChanged(Phase.DECODING, time.monotonic())
        yield from self._write(request.request_id, prompt, reused, prefill_s)

    def _write(
        self, request_id: int, prompt: int, reused: int, prefill_s: float
    ) -> Iterator[tuple[float, Event]]:
        said = {Channel.THINKING: "", Channel.ANSWER: ""}
        progress = DecodeProgress(request_id, 0, 0, 0.0, prompt, CONTEXT)
        began = time.monotonic()
        for channel, text in ((Channel.THINKING, THINKING), (Channel.ANSWER, ANSWER)):
            for word in text.split(" "):
                if self._stopping.is_set():
                    break
                said[channel] += word + " "
                progress = replace(
                    progress,
                    tokens=progress.tokens + 1,
                    thinking_tokens=progress.thinking_tokens + (channel is Channel.THINKING),
                    seconds=time.monotonic() - began,
                    context_used=progress.context_used + 1,
                )
                yield 1 / TOKENS_PER_S, TextDelta(request_id, channel, word + " ")
                yield 0.0, progress
        self._held = progress.context_used
        stopped = self._stopping.is_set()
        seconds = max(progress.seconds, 1e-6)
        yield (
            0.0,
            RequestFinished(
                request_id,
                FinishReason.CANCELLED if stopped else FinishReason.STOP,
                prompt,
                reused,
                tuple(range(progress.tokens)),
                said[Channel.ANSWER],
                said[Channel.THINKING],
                Timings(
                    2.6,
                    prefill_s,
                    seconds,
                    (prompt - reused) / max(prefill_s, 1e-6),
                    progress.tokens / seconds,
                ),
                self._held,
                CONTEXT,
            ),
        )
        yield 0.0, PhaseChanged(Phase.READY, time.monotonic())


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pick", action="store_true", help="start with the choice of a model")
    parser.add_argument("--slow", type=float, default=1.0, help="stretch all times")
    arguments = parser.parse_args()
    app = StrataDeskApp(
        DemoEngine(arguments.slow),
        None if arguments.pick else Path("demo.gguf"),
        0,
        EngineSettings(),
        SamplingSettings(),
        Search,
    )
    with whole_pastes():
        app.run()
    sys.exit(app.return_code)


if __name__ == "__main__":
    main()
