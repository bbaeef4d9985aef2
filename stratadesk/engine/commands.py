"""What the engine is told: frozen dataclasses put into its command queue.

A command never blocks its sender; what comes of it arrives as events (`engine/events.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratadesk.engine.vram.machine_facts import MachineFacts
    from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings


class Device(StrEnum):
    """Which backend computes. `AUTO` takes CUDA when this version and machine have it."""

    AUTO = "auto"
    CUDA = "cuda"
    HOST = "host"


class KvFormat(StrEnum):
    """How keys and values are stored in the KV cache."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is loaded.

    `max_context` is in tokens, 0 meaning the model's own length but at most 32,768, on a real card
    4,096; `chunk` is the number of prompt tokens computed at once, 0 leaving it to the plan. `mtp`
    loads the block that drafts tokens. `plan` and `machine` say what is chosen and what there is
    of a card's memory; without them the host takes the RAM it needs. `poison` overwrites memory
    that was lent or is fresh with NaN patterns and compares bytes before each use (tests,
    debugging).
    """

    device: Device = Device.AUTO
    max_context: int = 0
    kv_format: KvFormat = KvFormat.F16
    chunk: int = 0
    mtp: bool = False
    plan: PlanSettings | None = None
    machine: MachineFacts | None = None
    poison: bool = False


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How the next token is chosen; names and order of application as in llama.cpp.

    Penalties, then top-k, top-p, min-p, temperature, then a draw. `temperature` 0 is greedy.
    `top_k` 0, `top_p` 1, `min_p` 0, `repeat_penalty` 1 and the other penalties 0 switch the
    respective step off. `penalty_last_n` counts tokens of context the penalties look at.
    `seed` None draws a fresh one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. `reasoning` is what an assistant thought before its answer."""

    role: str
    content: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load the GGUF file (any shard) at `path`; a model already loaded is released first."""

    path: Path
    settings: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer once. Exactly one of `messages`, `raw_prompt` and `tokens` is given.

    `messages` go through the chat template; `raw_prompt` is the whole prompt with special
    tokens parsed; `tokens` are ids taken as they are. `max_tokens` 0 means until the context
    is full. `thinking` is handed to the template as `enable_thinking` when not None.
    """

    request_id: int
    messages: tuple[Message, ...] = ()
    raw_prompt: str | None = None
    tokens: tuple[int, ...] = ()
    max_tokens: int = 0
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    ignore_eos: bool = False
    thinking: bool | None = None
    force_chatml: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request between two tokens or two prompt chunks; what was said is kept."""

    request_id: int


@dataclass(frozen=True, slots=True)
class CancelLoad:
    """Give up the loading of a model, the running one and those that wait their turn."""


@dataclass(frozen=True, slots=True)
class SetReserve:
    """Keep `reserve` bytes of the card free from the next safe point on."""

    reserve: int


@dataclass(frozen=True, slots=True)
class PreviewReserve:
    """Tell what keeping `reserve` bytes free would do, and change nothing."""

    reserve: int


@dataclass(frozen=True, slots=True)
class SetHeadAlias:
    """Whether prompts may take the head's bytes, from the next prompt on."""

    alias: HeadAlias


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Release everything and end the engine thread."""


Command = (
    LoadModel
    | Generate
    | Cancel
    | CancelLoad
    | PreviewReserve
    | SetReserve
    | SetHeadAlias
    | Shutdown
)
