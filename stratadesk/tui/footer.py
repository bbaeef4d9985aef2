"""Which keys the chat's footer shows, with the values that they change."""

from stratadesk.tui.live_control import LiveControl
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.key_bar import KeyItem

HELP = 9
"""Stands on every screen: whoever finds the list of keys finds all that had to give way."""

STOP, IDLE_STOP = 8, 5
"""What can be stopped keeps its key on the narrowest screen; its mere place gives way."""


def footer(
    state: MonitorState, control: LiveControl, look: dict[str, str], stoppable: str
) -> tuple[KeyItem, ...]:
    """Return the keys that are of use now; those for a card's memory only where there is one.

    The key that stops what is `stoppable` comes last: nothing moves when it comes and goes.
    """
    needs_reload = control.waits_for_reload or state.may_load_again
    card = _card_items(state, control) if state.settings and state.lost is None else ()
    says = "start again" if state.lost is not None else ""
    reload = (KeyItem("reload", "app.reload", weight=7, says=says),) if needs_reload else ()
    return (
        KeyItem("help", "app.show_help", weight=HELP),
        KeyItem("model", "app.choose_model", weight=3 if not card else 1),
        *card,
        KeyItem("monitor", "screen.cycle_monitor", look["monitor"], weight=2),
        KeyItem("thinking", "screen.toggle_thinking", look["thinking"], weight=2),
        *reload,
        KeyItem("settings", "app.show_settings", weight=3),
        KeyItem("new_chat", "screen.new_chat", weight=1),
        KeyItem("palette", "app.command_palette", weight=0),
        KeyItem("quit", "app.quit", weight=4),
        KeyItem(
            "stop",
            "screen.stop",
            weight=STOP if stoppable else IDLE_STOP,
            idle=not stoppable,
            says=stoppable,
        ),
    )


def _card_items(state: MonitorState, control: LiveControl) -> tuple[KeyItem, ...]:
    if state.settings is None:
        return ()
    reserve = scale_of(state.ledger.total if state.ledger else 0).text(state.settings.reserve)
    alias = KeyItem("alias", "app.cycle_alias", control.alias_words(state), weight=5)
    return (
        *(() if control.on_real_card else (alias,)),
        KeyItem(
            "reserve_down",
            "app.show_settings",
            reserve,
            weight=6,
            says="reserve",
            pair="reserve_up",
        ),
    )
