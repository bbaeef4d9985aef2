"""The scripted part of the demo: a long prompt on a full card, and a browser that takes the rest.

No figure here is measured. Times are those that the plan predicts for such a laptop.
"""

import time
from collections.abc import Callable, Iterator

from stratadesk.demo.laptop import BROWSER, EXPERT, HEAD, Laptop
from stratadesk.demo.scene import Step
from stratadesk.engine.card_events import PowerSample, Provenance
from stratadesk.engine.events import (
    Channel,
    DecodeProgress,
    FinishReason,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    TextDelta,
    Timings,
)
from stratadesk.engine.vram.phase_table import HeadPlace, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.units import GIB, MIB

PROVENANCE = Provenance("SCRIPTED", "an 8 GB laptop under Windows, made up: nothing is measured")
QUESTION = "Summarise this log of 15,934 tokens, while a browser opens a video."
CONTEXT = 32_768
PROMPT, CHUNK, LENT = 15_934, 4_096, 107
CHUNK_S, TOKEN_S, SAMPLE_S, RETURN_S = 1.9, 1 / 24, 0.25, 0.028
BROWSER_AFTER = 6_000
"""The browser grows once so many tokens are read."""
WHY = (
    "alias at chunk 4,096 7.60 s, bound by computing, 107 slots lent; "
    "slower: loan at chunk 4,096 7.71 s"
)
_PARAGRAPHS = (
    "This part of the demo is a **script**; no model runs here.",
    f"While the prompt was read, {BROWSER} took the last of the card's free memory. Under Windows "
    "nothing fails then: parts of video memory move to RAM, and everything becomes several times "
    "slower without any error. That is what the bar at the top says, for as long as it holds.",
    "As soon as the prompt was read, StrataDesk gave expert slots back until the reserve was free "
    "again. The bar goes away by itself after five seconds above the reserve.",
    "You can do the same by hand: **F5** keeps more free and costs expert slots, **F4** keeps "
    "less. Each press says first what it will do. **F3** says whether prompts may use the output "
    "head's memory, and **F9** shows all settings.",
    "The column on the right adds up: every MiB of the card has a name.",
)
ANSWER = "\n\n".join(_PARAGRAPHS)

Clock = Callable[[], float]


def load(laptop: Laptop, clock: Clock = time.monotonic) -> Iterator[Step]:
    """The model becomes ready."""
    yield 0.0, PROVENANCE
    yield 0.0, PhaseChanged(Phase.LOADING, clock())
    yield 0.3, laptop.phase(VramState.READY, clock())
    yield 0.0, laptop.sample(clock())
    yield 0.0, laptop.cache(clock())
    yield 0.0, laptop.settings
    yield 0.0, _model()
    yield 0.0, PhaseChanged(Phase.READY, clock())
    yield 0.0, MemorySample(19 * GIB, 7 * GIB, 32 * GIB)
    yield 0.0, PowerSample(on_battery=False, percent=88.0, throttled=())


def answer(laptop: Laptop, request_id: int, clock: Clock = time.monotonic) -> Iterator[Step]:
    """A prompt is read, the browser grows, the answer is written."""
    began = clock()
    yield from _read(laptop, request_id, clock)
    prefill_s = clock() - began
    yield from _return(laptop, clock)
    yield 0.0, PhaseChanged(Phase.DECODING, clock())
    if laptop.free < laptop.reserve:
        yield 0.0, laptop.keep_reserve(_reason(laptop))
    progress = nothing_written(request_id)
    for step in _write(laptop, request_id, clock):
        if isinstance(step[1], DecodeProgress):
            progress = step[1]
        yield step
    yield from finish(laptop, request_id, progress, ANSWER, prefill_s, FinishReason.STOP, clock)


def finish(
    laptop: Laptop,
    request_id: int,
    progress: DecodeProgress,
    text: str,
    prefill_s: float,
    reason: FinishReason,
    clock: Clock = time.monotonic,
) -> Iterator[Step]:
    """The answer ends; everything lent is back."""
    _give_back(laptop)
    yield 0.0, laptop.phase(VramState.READY, clock())
    seconds = max(progress.seconds, 1e-6)
    rates = PROMPT / max(prefill_s, 1e-6), progress.tokens / seconds
    yield (
        0.0,
        RequestFinished(
            request_id,
            reason,
            PROMPT,
            0,
            tuple(range(progress.tokens)),
            text,
            "",
            Timings(5.2, prefill_s, progress.seconds, *rates),
            progress.context_used,
            CONTEXT,
        ),
    )
    yield 0.0, PhaseChanged(Phase.READY, clock())
    yield 0.0, laptop.cache(clock())


def nothing_written(request_id: int) -> DecodeProgress:
    """An answer before its first token."""
    return DecodeProgress(request_id, 0, 0, 0.0, PROMPT, CONTEXT)


def _read(laptop: Laptop, request_id: int, clock: Clock) -> Iterator[Step]:
    yield 0.0, PhaseChanged(Phase.PROMPT, clock())
    yield 0.0, RequestStarted(request_id, PROMPT, 0, "")
    laptop.layout, laptop.head, laptop.lent = Layout.ALIAS, HeadPlace.OUT, LENT
    laptop.refilled = 0
    yield 0.0, laptop.phase(VramState.PROMPT, clock())
    yield 0.0, _planned(request_id)
    yield 0.0, laptop.cache(clock())
    began, read = clock(), 0
    while read < PROMPT:
        yield from _samples(laptop, CHUNK_S, clock)
        read = min(read + CHUNK, PROMPT)
        yield 0.0, PromptProgress(request_id, read, 0, PROMPT, clock() - began, CHUNK)
        if read > BROWSER_AFTER and laptop.grew is None:
            laptop.browser_takes(laptop.free)


def _return(laptop: Laptop, clock: Clock) -> Iterator[Step]:
    laptop.head = HeadPlace.RETURNING
    yield 0.0, laptop.phase(VramState.RETURNING, clock())
    _give_back(laptop)
    laptop.reserved = LENT
    yield RETURN_S, laptop.phase(VramState.DECODING, clock())
    yield 0.0, laptop.cache(clock())


def _write(laptop: Laptop, request_id: int, clock: Clock) -> Iterator[Step]:
    began, sampled = clock(), clock()
    hits = misses = 0
    for number, word in enumerate(ANSWER.split(" "), 1):
        yield TOKEN_S, TextDelta(request_id, Channel.ANSWER, word if number == 1 else f" {word}")
        seconds = clock() - began
        yield 0.0, DecodeProgress(request_id, number, 0, seconds, PROMPT + number, CONTEXT)
        if clock() - sampled < SAMPLE_S * 2:
            continue
        sampled = clock()
        laptop.refilled += laptop.reserved
        laptop.reserved = 0
        hits, misses = hits + 2_740, misses + 1_100
        yield 0.0, laptop.cache(clock(), (2_740, 1_100, hits, misses))
        yield 0.0, laptop.sample(clock())


def _samples(laptop: Laptop, seconds: float, clock: Clock) -> Iterator[Step]:
    """Samples as often as the engine takes them in an alarm, for so many seconds."""
    for _ in range(round(seconds / SAMPLE_S)):
        yield SAMPLE_S, laptop.sample(clock())


def _give_back(laptop: Laptop) -> None:
    if laptop.head is not HeadPlace.IN:
        laptop.return_s = RETURN_S
    laptop.layout, laptop.head, laptop.lent = None, HeadPlace.IN, 0


def _reason(laptop: Laptop) -> str:
    taken = laptop.grew.n_bytes if laptop.grew else 0
    return f"{BROWSER} took {taken / MIB:,.0f} MiB"


def _planned(request_id: int) -> PromptPlanned:
    return PromptPlanned(request_id, "prompt", Layout.ALIAS, CHUNK, LENT, True, 7.6, WHY)


def _model() -> ModelLoaded:
    return ModelLoaded(
        name="35B-A3B IQ4_XS",
        architecture="qwen35moe",
        path="script",
        device="cuda",
        file_bytes=10_240 * EXPERT + 2 * HEAD,
        context=CONTEXT,
        kv_bytes=640 * MIB,
        state_bytes=126 * MIB,
        load_s=5.2,
        template="model",
        thinks=False,
    )
