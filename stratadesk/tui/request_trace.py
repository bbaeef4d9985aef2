"""What the last request did with the memory and when: the stuff of the timeline."""

from dataclasses import dataclass, replace

from stratadesk.engine.card_events import CacheSample
from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestFinished,
)
from stratadesk.engine.vram.phase_table import VramPhase, VramState


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Times in seconds of the engine's clock; None for what has not happened.

    `until` is the latest time known. `chunks` are the ends of the chunks that progress told of.
    Lent from `lent_at` on were `slots_lent` slots and, with `head_out`, the head. The return began
    at `returning_at` and ended at `back_at`; the head took `return_s` of it. `refilled_at` is when
    no slot waited for its expert any more, after `refilled` had come back.
    """

    began: float
    until: float
    chunks: tuple[float, ...] = ()
    lent_at: float | None = None
    slots_lent: int = 0
    head_out: bool = False
    returning_at: float | None = None
    back_at: float | None = None
    return_s: float = 0.0
    refilled_at: float | None = None
    refilled: int = 0
    decoding_at: float | None = None
    ended_at: float | None = None
    tokens: int = 0

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return max(self.until - self.began, 0.0)

    @property
    def lent_s(self) -> float | None:
        """How long the loan lasted, the return included; None while it lasts or without one."""
        if self.lent_at is None or self.back_at is None:
            return None
        return max(self.back_at - self.lent_at, 0.0)

    @property
    def read_until(self) -> float:
        """When reading the prompt ended, or how far it is known to have gone."""
        ends = (self.returning_at, self.decoding_at, self.ended_at)
        return next((end for end in ends if end is not None), self.until)


def follow(trace: RequestTrace, event: Event) -> RequestTrace:
    """Return the trace after `event`; an ended one stays as it is."""
    if trace.ended_at is not None:
        return trace
    match event:
        case PromptPlanned():
            trace = replace(trace, slots_lent=event.slots_lent, head_out=event.head_out)
        case PromptProgress():
            trace = _read(trace, event)
        case VramPhase():
            trace = _memory_changed(trace, event)
        case CacheSample():
            trace = _sampled(trace, event)
        case DecodeProgress():
            trace = _written(trace, event)
        case RequestFinished():
            trace = replace(trace, tokens=len(event.tokens))
        case PhaseChanged():
            trace = _phase_changed(trace, event)
    return trace


def _read(trace: RequestTrace, event: PromptProgress) -> RequestTrace:
    end = trace.began + event.seconds
    if not event.read or (trace.chunks and end <= trace.chunks[-1]):
        return trace
    return _seen(replace(trace, chunks=(*trace.chunks, end)), end)


def _memory_changed(trace: RequestTrace, event: VramPhase) -> RequestTrace:
    if event.state is VramState.PROMPT:
        trace = replace(trace, lent_at=event.at)
    elif _returns_what_was_lent(event):
        trace = replace(trace, returning_at=event.at)
    elif trace.returning_at is not None and trace.back_at is None:
        took = event.return_s if trace.head_out else 0.0
        trace = replace(trace, back_at=event.at, return_s=took)
    return _seen(trace, event.at)


def _returns_what_was_lent(event: VramPhase) -> bool:
    """Whether a prompt's loan comes back: an answer that is stopped has nothing lent any more."""
    ends = event.state in (VramState.RETURNING, VramState.CANCELLING)
    return ends and event.layout is not None


def _sampled(trace: RequestTrace, event: CacheSample) -> RequestTrace:
    if trace.back_at is None or trace.refilled_at is not None or event.at < trace.back_at:
        return trace
    done = event.at if event.reserved == 0 else None
    return replace(trace, refilled=event.refilled, refilled_at=done)


def _written(trace: RequestTrace, event: DecodeProgress) -> RequestTrace:
    trace = replace(trace, tokens=event.tokens)
    if trace.decoding_at is None:
        return trace
    return _seen(trace, trace.decoding_at + event.seconds)


def _phase_changed(trace: RequestTrace, event: PhaseChanged) -> RequestTrace:
    trace = _seen(trace, event.at)
    if event.phase is Phase.DECODING and trace.decoding_at is None:
        return replace(trace, decoding_at=event.at)
    if event.phase in (Phase.READY, Phase.EMPTY, Phase.FAILED):
        return replace(trace, ended_at=event.at)
    return trace


def _seen(trace: RequestTrace, at: float) -> RequestTrace:
    return replace(trace, until=max(trace.until, at))
