"""The phase in one word, and where it stands among the steps of a request."""

from stratadesk.engine.events import Phase
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.tui.figures import clock
from stratadesk.tui.monitor_state import MonitorState

WORDS = {
    Phase.EMPTY: "NO MODEL",
    Phase.LOADING: "LOADING",
    Phase.READY: "READY",
    Phase.PROMPT: "READING PROMPT",
    Phase.DECODING: "WRITING",
    Phase.CANCELLING: "STOPPING",
    Phase.FAILED: "FAILED",
}
WAS_READ = "PROMPT WAS READ"
SHORT_WORDS = {WORDS[Phase.PROMPT]: "READING", WAS_READ: "READ"}
"""What stands for a word where it has no room."""
RETURNING, RESIZING, GPU_LOST = "RETURNING", "RESIZING", "GPU LOST"
JUST_READ_S = 0.7
"""How long it is told that a prompt was read of which no redraw could tell that it was."""
MARKS = {Phase.READY: "●", Phase.FAILED: "✗", Phase.EMPTY: "○"}
BUSY_MARK = "▶"

STEPS = ("ready", "prompt", "return", "decode")
SHORT_STEPS = ("ready", "prompt", "back", "decode")
_STEP_OF = {Phase.READY: 0, Phase.PROMPT: 1, Phase.CANCELLING: 2, Phase.DECODING: 3}


def phase_word(state: MonitorState) -> str:
    """Return what the engine is doing, in capitals."""
    if state.lost is not None:
        return GPU_LOST
    if _in(state, VramState.RETURNING):
        return RETURNING
    if _in(state, VramState.RESIZING):
        return RESIZING
    return WORDS[state.phase]


def phase_mark(state: MonitorState) -> str:
    """Return the glyph that goes with the word."""
    return MARKS.get(state.phase, BUSY_MARK)


def just_read(state: MonitorState, now: float) -> float | None:
    """Return how long reading the prompt took, in seconds, if that ended a moment ago."""
    trace = state.trace
    if trace is None or trace.decoding_at is None or now - trace.decoding_at > JUST_READ_S:
        return None
    calm = state.phase in (Phase.DECODING, Phase.READY) and state.lost is None
    return trace.read_until - trace.began if calm else None


def current_step(state: MonitorState) -> int | None:
    """Return which of the `STEPS` the engine is at, None outside a request and its rest."""
    return 2 if _in(state, VramState.RETURNING) else _STEP_OF.get(state.phase)


def phase_clock(state: MonitorState, now: float) -> str:
    """Write how long the phase has lasted; nothing while the engine rests."""
    since = state.since
    if _in(state, VramState.RETURNING) and state.vram is not None:
        since = state.vram.at
    return clock(now - since) if state.busy and since is not None else ""


def chunk_words(state: MonitorState) -> str:
    """Say which chunk of how many is being read; empty outside of reading."""
    prompt = state.prompt
    reading = state.phase is Phase.PROMPT and not _in(state, VramState.RETURNING)
    if not reading or prompt is None or not prompt.chunk:
        return ""
    chunks = -(-(prompt.total - prompt.reused) // prompt.chunk)
    return f"{min(-(-prompt.read // prompt.chunk) + 1, chunks)}/{chunks}"


def _in(state: MonitorState, memory: VramState) -> bool:
    """Whether the memory is in this state while a request runs or the engine rests."""
    resting = state.phase in (Phase.READY, Phase.PROMPT, Phase.DECODING)
    return resting and state.vram is not None and state.vram.state is memory
