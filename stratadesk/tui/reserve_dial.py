"""Turning the reserve up and down: first it is said what that does, a moment later it is done."""

from collections.abc import Callable

from stratadesk.engine.card_events import CardSettings
from stratadesk.engine.commands import Command, PreviewReserve, SetReserve
from stratadesk.engine.events import ReserveApplied
from stratadesk.tui import moment
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.passing_words import SHOWN_S, Later, Stoppable
from stratadesk.tui.reserve_words import applied_words, most_kept, preview_words

APPLIES_AFTER_S = 1.5


class ReserveDial:
    """Presses add up until nothing has been pressed for a moment; then the engine is told.

    `tell` hands a command to the engine, `applied` is told of the reserve in bytes that was asked
    for in the end, as far as it can be kept, `changed` that the words are new.
    """

    def __init__(
        self,
        tell: Callable[[Command], None],
        later: Later,
        changed: Callable[[], None],
        applied: Callable[[int], None],
    ) -> None:
        self._tell = tell
        self._later = later
        self._changed = changed
        self._applied = applied
        self._timer: Stoppable | None = None
        self._seen: ReserveApplied | None = None
        self._shown_until = float("-inf")
        self._most: int | None = None
        self.wanted: int | None = None
        """The reserve that will be asked for, in bytes; None when nothing is turned."""

    def turn(self, settings: CardSettings, steps: int) -> None:
        """Go `steps` up, or down when negative, from what is wanted or set.

        Up goes no further than what can be kept free.
        """
        now = settings.reserve if self.wanted is None else self.wanted
        wanted, most = max(now + steps * settings.step, 0), most_kept(settings)
        self.set(settings, wanted if most is None else min(wanted, most))

    def set(self, settings: CardSettings, reserve: int) -> None:
        """Want `reserve` bytes, and say what that does."""
        self.wanted, self._most = reserve, most_kept(settings)
        self._shown_until = float("-inf")
        self._restart(APPLIES_AFTER_S, self.apply)
        self._tell(PreviewReserve(reserve))
        self._changed()

    def apply(self) -> None:
        """Do it now, if anything is wanted."""
        wanted, self.wanted = self.wanted, None
        if wanted is None:
            return
        self._stop()
        self._tell(SetReserve(wanted))
        self._applied(wanted if self._most is None else min(wanted, self._most))
        self._changed()

    def hush(self) -> None:
        """Say no more of what was reached: another key has been pressed, whose value is of use."""
        self._shown_until = float("-inf")

    def take_back(self) -> bool:
        """Want nothing after all; return whether anything was wanted."""
        wanted, self.wanted = self.wanted, None
        if wanted is None:
            return False
        self._stop()
        self._changed()
        return True

    def follow(self, state: MonitorState) -> None:
        """Notice what was reached, and show it for a while."""
        if state.applied is None or state.applied is self._seen:
            self._seen = state.applied
            return
        self._seen = state.applied
        self._shown_until = moment.now() + SHOWN_S
        if self.wanted is None:
            self._restart(SHOWN_S, self._changed)

    def answers_keys(self, state: MonitorState) -> bool:
        """Whether the words are about what was pressed, and may stand where the keys do."""
        return self.wanted is not None or state.applied is None or not state.applied.reason

    def words(self, state: MonitorState) -> str:
        """Say what will be done, or for a while what was reached; else nothing."""
        if self.wanted is not None:
            return preview_words(state, self.wanted)
        if state.applied is not None and moment.now() < self._shown_until:
            return applied_words(state, state.applied)
        return ""

    def _restart(self, delay: float, callback: Callable[[], None]) -> None:
        self._stop()
        self._timer = self._later(delay, callback)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
