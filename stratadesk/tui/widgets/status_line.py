"""The monitor folded to one line, for small terminals."""

from textual.content import Content

from stratadesk.engine.events import Phase
from stratadesk.engine.vram.phase_table import HeadPlace
from stratadesk.tui import moment
from stratadesk.tui.alarm import memory_word
from stratadesk.tui.figures import clip, fit, gib, short_count
from stratadesk.tui.mib import scale_of
from stratadesk.tui.moment import Clock
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.phase_words import (
    SHORT_WORDS,
    chunk_words,
    phase_clock,
    phase_mark,
    phase_word,
)
from stratadesk.tui.widgets.drawing import MUTED, STRONG
from stratadesk.tui.widgets.head_line import last_loan
from stratadesk.tui.widgets.phase_banner import TICK_S
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.speed_figures import answer_speed, power_note, prompt_speed


class StatusLine(Section):
    """Phase, what is lent, what is free, speed; what does not fit is left out from the end.

    `clock` is as for `PhaseBanner`.
    """

    def __init__(self, clock: Clock = moment.read) -> None:
        super().__init__()
        self._clock = clock

    def on_mount(self) -> None:
        """Let the clock run."""
        self.set_interval(TICK_S, self.redraw)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw one row."""
        said = phase_word(state)
        word = clip(f"{phase_mark(state)} {SHORT_WORDS.get(said, said)}", width)
        room = width - len(word) - 2
        facts = fit(status_facts(state, self._clock()), room) if room > 0 else ""
        return Content.assemble((word, STRONG), ("  " + facts if facts else "", MUTED))


def status_facts(state: MonitorState, now: float) -> tuple[str, ...]:
    """Return the facts of the line, the most important first; empty ones are left out."""
    return (
        state.provenance.label if state.provenance else "",
        chunk_words(state),
        *(card_facts(state) if state.shows_card else ()),
        _loan_back(state),
        prompt_speed(state) or answer_speed(state),
        _hits(state),
        power_note(state.power),
        phase_clock(state, now),
        _progress(state),
        f"ctx {short_count(state.context_used)}/{short_count(state.context_total)}"
        if state.context_total
        else "",
        *_ram_facts(state),
    )


def card_facts(state: MonitorState) -> tuple[str, ...]:
    """Say what is out or lent, and how much of the card is free."""
    vram, status, cache = state.vram, state.status, state.cache
    scale = scale_of(state.ledger.total if state.ledger else 0)
    word = memory_word(status)
    free = f"free {scale.text(status.headroom)} MiB" if status and status.reading else ""
    return (
        f"{word} {free}".rstrip() if word else "",
        f"head {vram.head.upper()}" if vram and vram.head is not HeadPlace.IN else "",
        f"lent {cache.lent:,}" if cache and cache.lent else "",
        "" if word else free,
    )


def _loan_back(state: MonitorState) -> str:
    """How long the head was out; while it is, `card_facts` says so."""
    loan = last_loan(state.trace) if state.shows_card else ""
    return f"head {loan}" if loan else ""


def _hits(state: MonitorState) -> str:
    if state.phase is not Phase.DECODING or state.cache is None or state.cache.window_rate is None:
        return ""
    return f"hits {state.cache.window_rate:.0%}"


def _progress(state: MonitorState) -> str:
    if state.phase is Phase.PROMPT and state.prompt is not None:
        done = state.prompt.read + state.prompt.reused
        return f"{done / max(state.prompt.total, 1):.0%}"
    return ""


def _ram_facts(state: MonitorState) -> tuple[str, ...]:
    if state.memory is None:
        return ()
    return f"RAM {gib(state.memory.resident)}", f"{gib(state.memory.available)} available"
