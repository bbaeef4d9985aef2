"""What an app may be given besides its engine: how it looks, and what it may ask of files."""

from dataclasses import dataclass, field

from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui.handover import ChatRecord, HandOver
from stratadesk.tui.ports import Cards, Foresee, OneCard, Remember, foresee_nothing, forget


@dataclass(frozen=True, slots=True)
class AppOptions:
    """All have a default, which keeps nothing and asks nobody.

    `remember` keeps a setting for the next start, `foresee` tells what a reload with other
    settings would give, `look` is how the screen starts, `fixed` names the settings that were
    given for this run, by a flag or the environment. `cards` fits the settings to each model.
    `hand_over` keeps everything for a program that starts in the place of this one; without it a
    load after a loss of the card fails. `chat` is what was handed over to this one.
    """

    remember: Remember = forget
    foresee: Foresee = foresee_nothing
    look: InterfaceSettings = field(default_factory=InterfaceSettings)
    fixed: frozenset[str] = frozenset()
    cards: Cards = field(default_factory=OneCard)
    hand_over: HandOver | None = None
    chat: ChatRecord | None = None


USUAL = AppOptions()
