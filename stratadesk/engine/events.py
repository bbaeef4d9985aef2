"""What the engine says: frozen dataclasses, the only road from the engine to any screen.

Events of a type in `LATEST_VALUE` replace an older one of the same type that nobody has read
yet; all others are delivered each and in order. Times are seconds of `time.monotonic()`.
"""

from dataclasses import dataclass
from enum import StrEnum

from stratadesk.engine.card_events import (
    CacheSample,
    CardSettings,
    DeviceLost,
    PowerSample,
    Provenance,
    ReservePreviewed,
)
from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.phase_table import VramPhase
from stratadesk.engine.vram.states import MemoryStatus


class Phase(StrEnum):
    """What the engine is doing."""

    EMPTY = "empty"
    LOADING = "loading"
    READY = "ready"
    PROMPT = "prompt"
    DECODING = "decoding"
    CANCELLING = "cancelling"
    FAILED = "failed"


class FinishReason(StrEnum):
    """Why an answer ended: an end token or stop string, the token limit, or a cancel."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Channel(StrEnum):
    """Which stream of an answer a piece of text belongs to."""

    ANSWER = "answer"
    THINKING = "thinking"


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """The engine went from one phase into another; `at` is when."""

    phase: Phase
    at: float


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far loading is: `stage` in words, `done` of `total` in `unit` ("bytes", "kernels").

    A stage with nothing to count has the unit "" and a total of 0. `name` is the model's, until
    its file is open the file's; `file_bytes` is the size of all its files, 0 until they are open.
    """

    stage: str
    done: int
    total: int
    unit: str
    name: str = ""
    file_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is ready. Sizes in bytes, context in tokens, times in seconds.

    `load_s` leaves out `kernels_s`, in which kernels were compiled or read: loading the model again
    takes only the former.
    """

    name: str
    architecture: str
    path: str
    device: str
    file_bytes: int
    context: int
    kv_bytes: int
    state_bytes: int
    load_s: float
    template: str
    """Where the chat template comes from: "model" or "ChatML"."""
    thinks: bool
    """Whether the template knows `enable_thinking` or the vocabulary has `<think>`."""
    warnings: tuple[str, ...] = ()
    kernels_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadCancelled:
    """A `CancelLoad` ended the loading of `file`, or kept it from beginning: nothing is loaded."""

    file: str


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A prompt is about to be read: `reused` of its `prompt_tokens` are already held.

    `prefix_note` says in words where and why the prefix broke, empty when it did not.
    """

    request_id: int
    prompt_tokens: int
    reused: int
    prefix_note: str


@dataclass(frozen=True, slots=True)
class PromptPlanned:
    """How the prompt is read: `chunk` tokens at once, buffers laid out as `layout` says.

    `path` is "prompt", or "decode" for a short one, which has no layout (""). `slots_lent` expert
    slots and, with `head_out`, the head's bytes hold the buffers meanwhile. `seconds` is the
    prediction, `why` the reason in words.
    """

    request_id: int
    path: str
    layout: str
    chunk: int
    slots_lent: int
    head_out: bool
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How much of the prompt is read; `read` counts tokens computed, without those reused."""

    request_id: int
    read: int
    reused: int
    total: int
    seconds: float
    chunk: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that is safe to show: whole characters, no control token, no part of a stop string."""

    request_id: int
    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class DecodeProgress:
    """How far an answer is: `tokens` generated in `seconds`, context use in tokens."""

    request_id: int
    tokens: int
    thinking_tokens: int
    seconds: float
    context_used: int
    context_total: int


@dataclass(frozen=True, slots=True)
class MemorySample:
    """RAM in bytes: this process's resident set, what is available besides it, and the total."""

    resident: int
    available: int
    total: int


@dataclass(frozen=True, slots=True)
class VramSample:
    """How much of the card is free and how urgent that is; `ledger` is that of the moment."""

    status: MemoryStatus
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class ReserveApplied:
    """What became of a change of the reserve, or of an answer to other programs' `reason`.

    `reserve` is what was asked to be free and `free` what is, in bytes; `slots` are the expert
    slots left. Not `done` means that it waits for a safe point; `limitation` says in words why
    less was reached than asked.
    """

    reserve: int
    free: int
    slots: int
    done: bool
    limitation: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds per stage and tokens per second of an answer; `load_s` as in `ModelLoaded`."""

    load_s: float
    prefill_s: float
    decode_s: float
    prefill_tps: float
    decode_tps: float


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """An answer is complete. `tokens` are the generated ids, the end token included."""

    request_id: int
    finish_reason: FinishReason
    prompt_tokens: int
    reused: int
    tokens: tuple[int, ...]
    text: str
    reasoning: str
    timings: Timings
    context_used: int
    context_total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in the three parts every screen shows, and the exit code a command ends with.

    `request_id` is None when it was no request that failed, and `loading` tells whether it was the
    loading of a model. `offers_chatml` is set when the model's own template failed and answering
    with ChatML instead would work.
    """

    request_id: int | None
    title: str
    sentence: str
    remedy: str
    exit_code: int
    offers_chatml: bool = False
    loading: bool = False


@dataclass(frozen=True, slots=True)
class EngineStopped:
    """The engine thread has ended; the last event."""


Event = (
    PhaseChanged
    | LoadProgress
    | ModelLoaded
    | LoadCancelled
    | RequestStarted
    | PromptPlanned
    | PromptProgress
    | TextDelta
    | DecodeProgress
    | MemorySample
    | VramPhase
    | VramSample
    | CacheSample
    | CardSettings
    | ReservePreviewed
    | ReserveApplied
    | PowerSample
    | DeviceLost
    | Provenance
    | RequestFinished
    | Failure
    | EngineStopped
)

LATEST_VALUE = (
    LoadProgress,
    PromptProgress,
    DecodeProgress,
    MemorySample,
    VramSample,
    CacheSample,
    CardSettings,
    ReservePreviewed,
    PowerSample,
)
