"""What a screen says about free video memory, in words.

The key captions are given by whoever knows the user's bindings.
"""

import math
from dataclasses import dataclass

from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.engine.vram.states import CALM_S, MemoryState, MemoryStatus, is_zero
from stratadesk.units import MIB, mib

UNAVAILABLE = "N/A"

_WORDS = {MemoryState.LOW: "LOW", MemoryState.ZERO: "EMPTY", MemoryState.LOST: "NO READING"}
_WHEN_EMPTY = {
    True: "Windows is moving parts of it to RAM, which makes answers several times slower, "
    "without any error.",
    False: "What is asked for next is refused; nothing becomes slower.",
    None: "Whether what is asked for next is refused or becomes slow is not known ({model}).",
}
_AFTER_EMPTY = {
    True: "What Windows moved to RAM may stay there for a while and make answers slower.",
    False: "What was asked for meanwhile may have been refused.",
    None: "Whether that made answers slower is not known ({model}).",
}
_WHEN_LOW = {
    True: "At 0 MiB Windows moves parts of it to RAM, which makes answers several times slower.",
    False: "At 0 MiB what is asked for next is refused.",
    None: "What happens at 0 MiB is not known ({model}).",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The captions of the two keys that help."""

    lower: str = "F4"
    higher: str = "F5"


@dataclass(frozen=True, slots=True)
class Step:
    """What one press gives back: bytes of video memory, and the expert slots they cost.

    Where either is 0 there is nothing to give: on a real card no slot can be given back yet.
    """

    n_bytes: int
    slots: int


@dataclass(frozen=True, slots=True)
class Banner:
    """What goes above everything else: a word that tells the state without colour, and why."""

    state: MemoryState
    word: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All sentences in one line."""
        return " ".join(self.sentences)


DEFAULT_KEYS = Keys()


def banner(
    status: MemoryStatus, step: Step | None = None, keys: Keys = DEFAULT_KEYS
) -> Banner | None:
    """Write the banner for a status; None while all is well."""
    if status.state is MemoryState.OK:
        return None
    lost = status.state is MemoryState.LOST
    sentences = _lost(status) if lost else _short(status, step, keys)
    return Banner(status.state, _WORDS[status.state], tuple(sentences))


def source_line(reading: MemoryReading) -> str:
    """Tell the free figure, who decided it, what every source says, and the driver model."""
    deciding = reading.deciding
    shown = f"free {figure_mib(reading.headroom)}"
    if deciding:
        shown += f" by {deciding.source}"
    told = [f"{figure.source} {figure_mib(figure.headroom)}" for figure in reading.figures]
    if len(told) > 1:
        shown += f" ({' · '.join(told)})"
    return f"{shown} · {reading.driver_model.words}"


def missing_sources(reading: MemoryReading) -> tuple[str, ...]:
    """Name each source without a figure, and why it has none."""
    missing = (figure for figure in reading.figures if figure.headroom is None)
    reasons = [f"{figure.source}: {figure.why}" for figure in missing]
    programs = reading.programs
    if programs is not None and programs.programs is None:
        reasons.append(f"{programs.source}, by program: {programs.why}")
    return tuple(reasons)


def reserve_reached(asked: int, got: int, limitation: str) -> str:
    """Tell what a change of the reserve reached; both in bytes.

    >>> reserve_reached(1536 << 20, 1210 << 20, "prompt floor")
    'asked 1,536 MiB, got 1,210 MiB: prompt floor'
    """
    why = f": {limitation}" if limitation else ""
    return f"asked {figure_mib(asked)}, got {figure_mib(got)}{why}"


def figure_mib(n_bytes: int | None) -> str:
    """Write a figure in whole MiB, rounded down so that 0 is shown when nothing is left."""
    return UNAVAILABLE if n_bytes is None else f"{int(mib(n_bytes)):,} MiB"


def _short(status: MemoryStatus, step: Step | None, keys: Keys) -> list[str]:
    sentences = [_figures(status), _effect(status)]
    if status.grew:
        sentences.append(f"Grew just now: {status.grew.name} +{figure_mib(status.grew.n_bytes)}.")
    return [*sentences, _help(status, step, keys), _clearing(status)]


def _figures(status: MemoryStatus) -> str:
    by = f" by {status.source}" if status.source else ""
    figures = f"{figure_mib(status.headroom)} free{by}, reserve {figure_mib(status.reserve)}"
    if _is_empty(status):
        return f"No free video memory: {figures}."
    if status.state is MemoryState.ZERO:
        return f"Video memory ran out: now {figures}."
    kept = "keeps the reserve again" if status.reserve_kept else "is below the reserve"
    return f"Video memory {kept}: {figures}."


def _effect(status: MemoryStatus) -> str:
    model = status.reading.driver_model if status.reading else DriverModel.UNKNOWN
    if _is_empty(status):
        effects = _WHEN_EMPTY
    else:
        effects = _AFTER_EMPTY if status.state is MemoryState.ZERO else _WHEN_LOW
    return effects[model.pages].format(model=model.words)


def _is_empty(status: MemoryStatus) -> bool:
    return status.headroom is not None and is_zero(status.headroom)


def _help(status: MemoryStatus, step: Step | None, keys: Keys) -> str:
    """What to do; a lower reserve is no help where nothing is free."""
    close = "Close it" if status.grew else "Close what uses the card"
    lowers = "" if _is_empty(status) else f"; {keys.lower} lowers the reserve"
    if step and not (step.n_bytes and step.slots):
        return f"{close}: {keys.higher} has nothing left to give back{lowers}."
    gives = "memory back by raising the reserve"
    if step:
        lost = "1 expert slot" if step.slots == 1 else f"{step.slots:,} expert slots"
        gives = f"{_step_mib(step.n_bytes)} back (−{lost})"
    return f"{close}, or press {keys.higher}: it gives {gives}{lowers}."


def _step_mib(n_bytes: int) -> str:
    """As `figure_mib`, but a step of a small card is less than 1 MiB and more than none."""
    return f"{mib(n_bytes):.2f} MiB" if n_bytes < MIB else figure_mib(n_bytes)


def _clearing(status: MemoryStatus) -> str:
    if status.reserve_kept:
        left = max(1, math.ceil(CALM_S - status.kept_for))
        return f"This goes away by itself in {left} s if the reserve stays free."
    return f"This goes away by itself after {CALM_S:.0f} s above the reserve."


def _lost(status: MemoryStatus) -> list[str]:
    if status.age is None:
        first = "Free video memory is not known."
    else:
        first = f"Free video memory has not been known for {status.age:.0f} s."
    reasons = missing_sources(status.reading) if status.reading else ()
    return [first, *(f"{reason}." for reason in reasons), "Until it is, no slots come or go."]
