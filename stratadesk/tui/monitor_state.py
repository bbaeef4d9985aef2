"""What the monitor shows: a snapshot made from engine events and nothing else."""

from dataclasses import dataclass, field, replace

from stratadesk.engine.card_events import (
    CacheSample,
    CardSettings,
    DeviceLost,
    PowerSample,
    Provenance,
    ReservePreviewed,
)
from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Failure,
    LoadCancelled,
    LoadProgress,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptPlanned,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    ReserveApplied,
    Timings,
    VramSample,
)
from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.phase_table import VramPhase
from stratadesk.engine.vram.states import MemoryStatus
from stratadesk.tui.free_history import FreeHistory
from stratadesk.tui.request_trace import RequestTrace, follow

BUSY = frozenset({Phase.LOADING, Phase.PROMPT, Phase.DECODING, Phase.CANCELLING})


@dataclass(frozen=True, slots=True)
class MonitorState:
    """Everything the monitor knows. `prompt` and `decode` belong to the current request.

    `since` is when the phase began, in seconds of `time.monotonic()`, None before the first
    phase. `context_used` and `context_total` count tokens. `status` is None where there is no
    card; `ledger` is the latest of the card's. `trace` is that of the current or last request.
    `load_failed` tells that the last load did, with no other begun since.
    """

    phase: Phase = Phase.EMPTY
    since: float | None = None
    load: LoadProgress | None = None
    cancelled: LoadCancelled | None = None
    load_failed: bool = False
    model: ModelLoaded | None = None
    planned: PromptPlanned | None = None
    prompt: PromptProgress | None = None
    decode: DecodeProgress | None = None
    last: Timings | None = None
    memory: MemorySample | None = None
    context_used: int = 0
    context_total: int = 0
    vram: VramPhase | None = None
    ledger: Ledger | None = None
    status: MemoryStatus | None = None
    history: FreeHistory = field(default_factory=FreeHistory)
    cache: CacheSample | None = None
    settings: CardSettings | None = None
    preview: ReservePreviewed | None = None
    applied: ReserveApplied | None = None
    power: PowerSample | None = None
    lost: DeviceLost | None = None
    provenance: Provenance | None = None
    trace: RequestTrace | None = None

    @property
    def busy(self) -> bool:
        """Whether the engine is working, so that a clock should run."""
        return self.phase in BUSY

    @property
    def may_load_again(self) -> bool:
        """Whether there is a model that was wanted and is not there."""
        ended = self.cancelled is not None or self.load_failed
        return self.lost is not None or (ended and self.phase is not Phase.LOADING)

    @property
    def has_card(self) -> bool:
        """Whether the model's memory is on a card, a simulated one included."""
        return self.status is not None

    @property
    def shows_card(self) -> bool:
        """Whether what was told of the card is of the present: nothing is, once it is lost."""
        return self.has_card and self.lost is None


def advance(state: MonitorState, event: Event) -> MonitorState:
    """Return the state after `event`; events the monitor does not show change nothing."""
    if state.trace is not None:
        state = replace(state, trace=follow(state.trace, event))
    return _with_card(_with_request(_with_engine(state, event), event), event)


def _with_engine(state: MonitorState, event: Event) -> MonitorState:
    match event:
        case PhaseChanged():
            state = _phase_changed(state, event)
        case LoadProgress():
            state = replace(state, load=event)
        case LoadCancelled():
            state = replace(state, cancelled=event)
        case Failure(loading=True):
            state = replace(state, load_failed=True)
        case ModelLoaded():
            state = _model_loaded(state, event)
        case MemorySample():
            state = replace(state, memory=event)
        case PowerSample():
            state = replace(state, power=event)
        case Provenance():
            state = replace(state, provenance=event)
        case DeviceLost():
            state = replace(state, phase=Phase.FAILED, prompt=None, decode=None, lost=event)
    return state


def _with_request(state: MonitorState, event: Event) -> MonitorState:
    match event:
        case RequestStarted():
            state = _request_started(state, event)
        case PromptPlanned():
            state = replace(state, planned=event)
        case PromptProgress():
            state = replace(state, prompt=event, context_used=event.reused + event.read)
        case DecodeProgress():
            state = _with_context(replace(state, decode=event), event)
        case RequestFinished():
            state = _with_context(replace(state, last=event.timings), event)
    return state


def _with_card(state: MonitorState, event: Event) -> MonitorState:
    match event:
        case VramPhase():
            state = _memory_changed(state, event)
        case VramSample():
            state = _sampled(state, event)
        case CacheSample():
            state = replace(state, cache=event)
        case CardSettings():
            state = replace(state, settings=event)
        case ReservePreviewed():
            state = replace(state, preview=event)
        case ReserveApplied():
            state = replace(state, applied=event, preview=None)
    return state


def _memory_changed(state: MonitorState, event: VramPhase) -> MonitorState:
    """Take over a phase of the memory; a resize that had to wait is told by one of them."""
    applied, resize = state.applied, event.resize
    if applied is not None and not applied.done and resize is not None:
        applied = replace(
            applied,
            free=event.ledger.free,
            slots=resize.slots,
            done=True,
            limitation=resize.limitation,
        )
    return replace(state, vram=event, ledger=event.ledger, applied=applied)


def _phase_changed(state: MonitorState, event: PhaseChanged) -> MonitorState:
    if event.phase in (Phase.EMPTY, Phase.LOADING):
        return MonitorState(
            phase=event.phase,
            since=event.at,
            memory=state.memory,
            power=state.power,
            provenance=state.provenance,
            lost=state.lost if event.phase is Phase.EMPTY else None,
            cancelled=state.cancelled if event.phase is Phase.EMPTY else None,
            load_failed=state.load_failed and event.phase is Phase.EMPTY,
        )
    phase = event.phase if state.lost is None else Phase.FAILED
    return replace(state, phase=phase, since=event.at)


def _model_loaded(state: MonitorState, event: ModelLoaded) -> MonitorState:
    return replace(state, model=event, load=None, context_used=0, context_total=event.context)


def _request_started(state: MonitorState, event: RequestStarted) -> MonitorState:
    began = state.since or 0.0
    return replace(
        state,
        planned=None,
        prompt=None,
        decode=None,
        context_used=event.reused,
        trace=RequestTrace(began, began),
    )


def _sampled(state: MonitorState, event: VramSample) -> MonitorState:
    return replace(
        state,
        status=event.status,
        ledger=event.ledger or state.ledger,
        history=state.history.with_status(event.status),
    )


def _with_context(state: MonitorState, event: DecodeProgress | RequestFinished) -> MonitorState:
    return replace(state, context_used=event.context_used, context_total=event.context_total)
