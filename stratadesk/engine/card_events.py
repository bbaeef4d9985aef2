"""What the engine says about a card while it runs: slots, live settings, power, loss.

They are events like those of `engine/events.py`, where they are listed. Sizes are bytes, times
seconds of `time.monotonic()`.
"""

from dataclasses import dataclass

from stratadesk.engine.vram.plan_settings import HeadAlias


@dataclass(frozen=True, slots=True)
class CacheSample:
    """What the expert slots hold and how often they were of use.

    `slots` are all that are mapped: the sum of `holding`, `filling`, `empty`, `lent` and
    `reserved`. Hits and misses count experts asked for while writing, in the `window_s` seconds
    since the sample before and in this answer. `refilled` slots came back since the last loan.
    `pinned` and `pageable` count experts in RAM. `link_bytes` crossed the link in the window;
    None while that is not counted.
    """

    at: float
    slots: int
    holding: int
    filling: int
    empty: int
    lent: int
    reserved: int
    window_s: float
    window_hits: int
    window_misses: int
    answer_hits: int
    answer_misses: int
    refilled: int
    pinned: int
    pinned_bytes: int
    pageable: int
    pageable_bytes: int
    link_bytes: int | None

    @property
    def window_rate(self) -> float | None:
        """Hits among the experts asked for in the window, None when none was."""
        return _share(self.window_hits, self.window_misses)

    @property
    def answer_rate(self) -> float | None:
        """Hits among the experts asked for in this answer, None before the first."""
        return _share(self.answer_hits, self.answer_misses)

    @property
    def link_rate(self) -> float | None:
        """Bytes per second over the link in the window, None while that is not known."""
        known = self.link_bytes is not None and self.window_s > 0
        return (self.link_bytes or 0) / self.window_s if known else None


@dataclass(frozen=True, slots=True)
class CardSettings:
    """What is set of that which can be changed while a model is loaded.

    Prompts go by `alias`, from the next one on by `alias_next`. One step of the reserve is
    `step` bytes and, upwards, costs about `step_slots` expert slots. `most` is the largest
    reserve that giving slots back could keep free now, in bytes; None where the share of the card
    cannot change or that was not told.
    """

    alias: HeadAlias
    alias_next: HeadAlias
    reserve: int
    step: int
    step_slots: int
    most: int | None = None

    @property
    def alias_waits(self) -> bool:
        """Whether a change of the alias waits for the next prompt."""
        return self.alias is not self.alias_next


@dataclass(frozen=True, slots=True)
class ReservePreviewed:
    """What a reserve of `reserve` bytes would do; nothing has changed yet.

    `before` is the reserve as it is, `free` what would be free. `waits` tells that it would wait
    for a safe point, `limitation` why less would be reached than asked.
    """

    before: int
    reserve: int
    slots_before: int
    slots: int
    free: int
    waits: bool
    limitation: str = ""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """What slows the machine down; None is unknown.

    `on_battery` is False on mains, None where the machine tells of no battery. `percent` is the
    battery's charge. `throttled` names the card's reasons for lower clocks, () for none; None
    where no driver tells.
    """

    on_battery: bool | None
    percent: float | None
    throttled: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """The card does not answer any more: nothing computes on it until the program starts again.

    `why` is one sentence. The host backend has no card to lose.
    """

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where all further events come from when no engine computes; screens show it always.

    `label` is one word ("RECORDED", "SCRIPTED"), `words` what it is, in a sentence.
    """

    label: str
    words: str


def _share(hits: int, misses: int) -> float | None:
    asked = hits + misses
    return hits / asked if asked else None
