"""What the monitor shows: a snapshot made from engine events and nothing else."""

from dataclasses import dataclass, replace

from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    LoadProgress,
    MemorySample,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    Timings,
)

BUSY = frozenset({Phase.LOADING, Phase.PROMPT, Phase.DECODING, Phase.CANCELLING})

PHASE_WORDS = {
    Phase.EMPTY: "NO MODEL",
    Phase.LOADING: "LOADING",
    Phase.READY: "READY",
    Phase.PROMPT: "READING PROMPT",
    Phase.DECODING: "WRITING",
    Phase.CANCELLING: "STOPPING",
    Phase.FAILED: "FAILED",
}


@dataclass(frozen=True, slots=True)
class MonitorState:
    """Everything the monitor knows. `prompt` and `decode` belong to the current request.

    `since` is when the phase began, in seconds of `time.monotonic()`, None before the first
    phase. `context_used` and `context_total` count tokens.
    """

    phase: Phase = Phase.EMPTY
    since: float | None = None
    load: LoadProgress | None = None
    model: ModelLoaded | None = None
    prompt: PromptProgress | None = None
    decode: DecodeProgress | None = None
    last: Timings | None = None
    memory: MemorySample | None = None
    context_used: int = 0
    context_total: int = 0

    @property
    def busy(self) -> bool:
        """Whether the engine is working, so that a clock should run."""
        return self.phase in BUSY


def advance(state: MonitorState, event: Event) -> MonitorState:
    """Return the state after `event`; events the monitor does not show change nothing."""
    match event:
        case PhaseChanged():
            state = _phase_changed(state, event)
        case LoadProgress():
            state = replace(state, load=event)
        case ModelLoaded():
            state = _model_loaded(state, event)
        case RequestStarted():
            state = replace(state, prompt=None, decode=None, context_used=event.reused)
        case PromptProgress():
            state = replace(state, prompt=event, context_used=event.reused + event.read)
        case DecodeProgress():
            state = _with_context(replace(state, decode=event), event)
        case RequestFinished():
            state = _with_context(replace(state, last=event.timings), event)
        case MemorySample():
            state = replace(state, memory=event)
    return state


def _phase_changed(state: MonitorState, event: PhaseChanged) -> MonitorState:
    changed = replace(state, phase=event.phase, since=event.at)
    if event.phase in (Phase.EMPTY, Phase.LOADING):
        return MonitorState(phase=event.phase, since=event.at, memory=state.memory)
    return changed


def _model_loaded(state: MonitorState, event: ModelLoaded) -> MonitorState:
    return replace(state, model=event, load=None, context_used=0, context_total=event.context)


def _with_context(state: MonitorState, event: DecodeProgress | RequestFinished) -> MonitorState:
    return replace(state, context_used=event.context_used, context_total=event.context_total)
