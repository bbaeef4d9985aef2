"""Which trouble stands above everything else, and its words."""

from dataclasses import dataclass
from enum import StrEnum

from stratadesk.engine.vram.states import MemoryState, MemoryStatus, is_zero
from stratadesk.engine.vram.wording import Keys, Step, banner
from stratadesk.keys import find_key
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line


class Urgency(StrEnum):
    """How loud an alarm is."""

    CALM = "calm"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A word that says it all, sentences that explain it, and how loud they are."""

    word: str
    sentences: tuple[str, ...]
    urgency: Urgency

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return " ".join(self.sentences)


def memory_word(status: MemoryStatus | None) -> str:
    """Return how short video memory is in a word or two; nothing while all is well.

    An alarm outlasts its cause by a few seconds: then it says what was.
    """
    if status is None or status.state is MemoryState.OK:
        return ""
    if status.state is MemoryState.LOST:
        return "NO READING"
    ran_out = status.state is MemoryState.ZERO
    if status.reserve_kept:
        return "WAS EMPTY" if ran_out else "WAS LOW"
    nothing_left = status.headroom is None or is_zero(status.headroom)
    return "EMPTY" if ran_out and nothing_left else "LOW"


def alarm_of(state: MonitorState) -> Alarm | None:
    """Return the alarm to show, None while all is well: a lost GPU, else short memory."""
    if state.lost is not None:
        return _gpu_lost(state.lost.why)
    if state.status is None:
        return None
    keys = Keys(find_key("reserve_down").caption, find_key("reserve_up").caption)
    said = banner(state.status, _step(state), keys)
    if said is None:
        return None
    urgent = said.state is MemoryState.ZERO
    return Alarm(
        memory_word(state.status),
        tuple(safe_line(sentence) for sentence in said.sentences),
        Urgency.URGENT if urgent else Urgency.CALM,
    )


def _step(state: MonitorState) -> Step | None:
    """What the next press gives back: nothing where slots have no more to give."""
    settings = state.settings
    if settings is None:
        return None
    if settings.most is None or settings.most >= settings.reserve + settings.step:
        return Step(settings.step, settings.step_slots)
    left = max(settings.most - settings.reserve, 0)
    return Step(left, settings.step_slots if left else 0)


def _gpu_lost(why: str) -> Alarm:
    again = find_key("reload").caption
    return Alarm(
        "GPU LOST",
        (
            safe_line(why),
            "The chat and what was answered so far are kept.",
            f"{again} starts StrataDesk again; nothing is computed until then.",
        ),
        Urgency.URGENT,
    )
