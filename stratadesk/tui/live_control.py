"""What the keys for live settings do: alias and reserve at once, the others with a reload."""

from collections.abc import Callable
from dataclasses import replace

from stratadesk.engine.card_control import RESERVE_STEP
from stratadesk.engine.commands import Command, Device, EngineSettings, SetHeadAlias
from stratadesk.engine.events import Event, Failure, ModelLoaded
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.keys import find_key
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.passing_words import Later, PassingWords
from stratadesk.tui.reload_choices import (
    DEVICE,
    ReloadChoice,
    Value,
    kept_value,
    waiting,
    with_changes,
    with_choices_of,
)
from stratadesk.tui.reserve_dial import ReserveDial
from stratadesk.units import MIB

OWN_CARD = "This model has a card of its own. Kept for the next one that has not:"
NO_CARD = "This model is on no card: there is no memory to share out."
NOTHING_LENT = "Prompts cannot borrow the head's memory on a real card yet."
ALL_ON_CARD = "All of this model stays on the card: there is nothing to choose here."


Fitted = Callable[[EngineSettings], EngineSettings]


class LiveControl:
    """Holds what is wanted until the engine has told that it is so.

    `settings` are those of the next load; `loaded` those of the last one. `tell` hands a command
    to the engine, `keep` keeps a value for the next start, if one chosen with the settings given is
    to be kept, `say` shows a remark, `changed` is called when what the footer shows is new.
    """

    def __init__(
        self,
        settings: EngineSettings,
        tell: Callable[[Command], None],
        keep: Callable[[str, object, EngineSettings], object],
        say: Callable[[str], None],
        later: Later,
        changed: Callable[[], None],
    ) -> None:
        self.settings = self.loaded = settings
        self.dial = ReserveDial(tell, later, changed, self._reserve_asked)
        self._said = PassingWords(later, changed)
        self._tell = tell
        self._keep = keep
        self._say = say
        self._changed = changed
        self._alias: HeadAlias | None = None
        self._unsaid = ""
        """What is to be said once the model is loaded: remarks from before are over then."""
        self._left: tuple[EngineSettings, EngineSettings] | None = None
        """Of the card that is not in use now: `settings` and `loaded` as they were on it."""
        self._fitted: Fitted = lambda settings: settings
        """Fits settings to the model that was loaded last."""
        self._tried: EngineSettings | None = None
        """Settings with a card that nothing was loaded onto yet: kept once something is."""
        self._asked_of_card: dict[str, object] = {}
        """The reserve on a real card to come: kept at once, it outlives what waits for a reload."""

    @property
    def waits_for_reload(self) -> bool:
        """Whether something was chosen that counts from the next load on."""
        return self.settings != self.loaded

    @property
    def on_real_card(self) -> bool:
        """Whether the model was loaded onto a card that is there."""
        return self.loaded.device is Device.CUDA

    @property
    def changes_device(self) -> bool:
        """Whether the next load is on another device than the last one."""
        return DEVICE.read(self.settings) != DEVICE.read(self.loaded)

    def has_card(self, state: MonitorState) -> bool:
        """Whether the next load is onto a card, a simulated one included."""
        return self.settings.plan is not None if self.changes_device else state.has_card

    def next_reserve(self, state: MonitorState) -> int | None:
        """Bytes of a real card that the next load needs free besides, where none is held now."""
        if state.settings is not None or self.settings.device is not Device.CUDA:
            return None
        return None if self.settings.plan is None else self.settings.plan.reserve

    def alias_words(self, state: MonitorState) -> str:
        """Write the alias as it is, or as it will be and from when on."""
        told = state.settings
        if told is None:
            return ""
        wanted = self._alias or told.alias_next
        waits = told.alias_waits and wanted is told.alias_next
        return f"{wanted} next prompt" if waits else str(wanted)

    def words(self, state: MonitorState) -> str:
        """Say what the last key will do or has done, for a while; else nothing.

        A change that can still be taken back goes first, and so does what nobody here asked for.
        """
        dial = self.dial.words(state)
        first = self.dial.wanted is not None or self._is_unasked(state)
        return dial if first else self._said.words or dial

    def replaces_keys(self, state: MonitorState) -> bool:
        """Whether there are words that may stand where the keys do: they answer one.

        What other programs did comes unasked: it must not take the keys that help away.
        """
        return bool(self.words(state)) and not self._is_unasked(state)

    def cycle_alias(self, state: MonitorState) -> None:
        """Go on to the next of auto, on and off."""
        if state.settings is None:
            self._say(NO_CARD)
            return
        if self.on_real_card:
            self._say(NOTHING_LENT)
            return
        self.dial.hush()
        choices = list(HeadAlias)
        now = self._alias or state.settings.alias_next
        self._alias = choices[(choices.index(now) + 1) % len(choices)]
        self._tell(SetHeadAlias(self._alias))
        self._note_live(alias=self._alias)
        self._keep("prefill_head_alias", self._alias.value, self.loaded)
        self._said.say(f"Head alias {self._alias} from the next prompt on")

    def turn_reserve(self, state: MonitorState, steps: int) -> None:
        """Turn the reserve up, or down when `steps` is negative."""
        reserve = self.next_reserve(state)
        if reserve is not None:
            self._reserve_next(reserve + steps * RESERVE_STEP)
        elif state.settings is None:
            self._say(NO_CARD)
        else:
            self._said.hush()
            self.dial.turn(state.settings, steps)

    def set_reserve(self, state: MonitorState, mib: int) -> None:
        """Want a reserve of so many MiB."""
        if self.next_reserve(state) is not None:
            self._reserve_next(mib * MIB)
        elif state.settings is None:
            self._say(NO_CARD)
        else:
            self._said.hush()
            self.dial.set(state.settings, mib * MIB)

    def choose(self, choice: ReloadChoice, state: MonitorState) -> None:
        """Go on to the next value of a setting that needs a reload."""
        if not choice.means_something(self.settings, has_card=self.has_card(state)):
            self._say(ALL_ON_CARD if self.settings.device is Device.CUDA else NO_CARD)
            return
        chosen = choice.next(self.settings)
        self.settings = self._moved(DEVICE.read(chosen)) if choice is DEVICE else chosen
        self._changed()

    def keep(self, key: str, value: str, words: str = "") -> None:
        """Keep a choice about the screen for the next start; `words` say what it was."""
        self.dial.hush()
        self._keep(key, value, self.settings)
        self._said.say(words)

    def fit(self, fitted: Fitted) -> None:
        """Fit the settings to the model that is loaded next; that is no choice of the user's.

        A model may have a card of its own. What was chosen for the card that is left, and not
        loaded yet, is not for that model: it waits until the other card is back. A card that the
        user has chosen another device for is left for good.
        """
        # What is still to be done at once is for the card on which it was wanted.
        self.dial.apply()
        self._fitted = fitted
        left = self.settings, self.loaded
        self.settings, self.loaded = fitted(self.settings), fitted(self.loaded)
        if self.settings.machine is left[0].machine or self.changes_device:
            return
        back, self._left = self._left or (self.loaded, self.loaded), left
        self.settings, self.loaded = (with_choices_of(each, self.loaded) for each in back)
        self._note_what_waits(*left)

    def settle(self) -> EngineSettings:
        """Return the settings to load with, and keep what was chosen for the next start.

        A card is kept once a model lies there: kept before, one that does not work would stop
        every later start.
        """
        # What differs only because the other device has other memory is nobody's choice.
        for choice in waiting(self.settings, self._as_loaded(DEVICE.read(self.settings))):
            self._keep(choice.field, kept_value(choice, self.settings), self.settings)
        if self.changes_device:
            self._tried = self.settings
            self._left = None
        if self.settings.device is not Device.CUDA:
            self._keep_tried()
        if self.settings.device is Device.CUDA:
            self._asked_of_card.clear()
        self.loaded = self.settings
        self._changed()
        return self.settings

    def give_up(self) -> bool:
        """Forget what was chosen and waits for a reload; return whether there was anything."""
        waited, self.settings = self.waits_for_reload, self.loaded
        self._changed()
        return waited

    def follow(self, state: MonitorState, batch: tuple[Event, ...]) -> None:
        """Notice what the engine has taken over, or refused."""
        if any(isinstance(event, ModelLoaded) for event in batch):
            self._keep_tried()
            if self._unsaid:
                self._say(self._unsaid)
                self._unsaid = ""
        refused = any(isinstance(event, Failure) and event.request_id is None for event in batch)
        if refused:
            self._said.hush()
        if refused or state.settings is None or state.settings.alias_next is self._alias:
            self._alias = None
        self.dial.follow(state)

    def _keep_tried(self) -> None:
        if self._tried is not None:
            self._keep(DEVICE.field, kept_value(DEVICE, self._tried), self._tried)
            self._tried = None

    def _moved(self, device: Value) -> EngineSettings:
        """What is wanted now, on another device: with the memory that it has there."""
        before = self._as_loaded(DEVICE.read(self.settings))
        return with_changes(before, self.settings, self._as_loaded(device))

    def _as_loaded(self, device: Value) -> EngineSettings:
        """What was loaded last, on a device: a choice that is taken back leaves nothing behind."""
        if device == DEVICE.read(self.loaded):
            return self.loaded
        fitted = self._fitted(DEVICE.write(self.loaded, device))
        return _with_plan(fitted, self._asked_of_card) if device == Device.CUDA else fitted

    def _reserve_next(self, reserve: int) -> None:
        """Want `reserve` bytes from the next load on: too many may be why there is no model."""
        reserve = max(0, reserve)
        self._asked_of_card["reserve"] = reserve
        if not self.changes_device:
            self.loaded = _with_plan(self.loaded, {"reserve": reserve})
        self.settings = _with_plan(self.settings, {"reserve": reserve})
        self._keep_reserve(reserve, self.settings)
        self._said.say(f"Reserve {reserve // MIB:,} MiB from the next load on")

    def _is_unasked(self, state: MonitorState) -> bool:
        return bool(self.dial.words(state)) and not self.dial.answers_keys(state)

    def _note_what_waits(self, settings: EngineSettings, loaded: EngineSettings) -> None:
        chosen = [
            f"{find_key(choice.key_id).label} {choice.words(settings)}"
            for choice in waiting(settings, loaded)
        ]
        if chosen:
            self._unsaid = f"{OWN_CARD} {', '.join(chosen)}."

    def _reserve_asked(self, reserve: int) -> None:
        self._note_live(reserve=reserve)
        self._keep_reserve(reserve, self.loaded)

    def _keep_reserve(self, reserve: int, held: EngineSettings) -> None:
        # The settings file holds whole MiB; only a simulated card is small enough for less.
        if reserve % MIB == 0:
            self._keep("vram_reserve_mib", reserve // MIB, held)

    def _note_live(self, **changes: object) -> None:
        """A live change is also that of the next load, and no reason for one.

        Where the next load is on another device, that one has what it takes over from this one.
        """
        wanted = DEVICE.read(self.settings)
        before = self._as_loaded(wanted)
        same_device = not self.changes_device
        self.loaded = _with_plan(self.loaded, changes)
        if same_device:
            self.settings = _with_plan(self.settings, changes)
        else:
            self.settings = with_changes(before, self.settings, self._as_loaded(wanted))


def _with_plan(settings: EngineSettings, changes: dict[str, object]) -> EngineSettings:
    if settings.plan is None:
        return settings
    plan = replace(settings.plan, **changes)  # type: ignore[arg-type]
    return replace(settings, plan=plan)
