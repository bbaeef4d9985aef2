"""What the settings screen shows, made from what is set, wanted and forecast."""

from stratadesk.engine.commands import Device
from stratadesk.keys import find_key
from stratadesk.tui.figures import milliseconds
from stratadesk.tui.live_control import LiveControl
from stratadesk.tui.mib import scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.ports import Prospect
from stratadesk.tui.reload_choices import RELOAD_CHOICES, ReloadChoice
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.failure_card import STARTS_AGAIN
from stratadesk.tui.widgets.settings_table import SettingRow
from stratadesk.units import mib

NO_CARD = "–"
NO_KEY = "–"
NOTHING_LENT = "unsupported"
"""Why no prompt borrows the head's memory on a real card, in a word."""
NOTES = {
    "set_device": "host is the CPU, cuda a card",
    "set_chunk": "prompt tokens computed at once",
    "set_cache": "most experts that the card holds",
    "set_kv": "q8_0 takes about half of f16",
    "set_context": "tokens; more of them cost slots",
}


def settings_rows(
    state: MonitorState, control: LiveControl, look: dict[str, str], fixed: frozenset[str]
) -> tuple[SettingRow, ...]:
    """Return all rows; settings in `fixed` were given for this run and are marked so."""
    return (
        SettingRow("", "At once"),
        *_live_rows(state, control, fixed),
        *_look_rows(look, fixed),
        SettingRow("", ""),
        SettingRow("", "With a reload"),
        *(_reload_row(choice, state, control, fixed) for choice in RELOAD_CHOICES),
    )


def _reload_row(
    choice: ReloadChoice, state: MonitorState, control: LiveControl, fixed: frozenset[str]
) -> SettingRow:
    key = find_key(choice.key_id)
    if choice.settled is not None and control.settings.device is Device.CUDA:
        return SettingRow(NO_KEY, key.label, *choice.settled, idle=True)
    return SettingRow(
        key.caption,
        key.label,
        choice.words(control.settings),
        _note(NOTES[choice.key_id], choice.field, fixed),
        pending=choice.read(control.settings) != choice.read(control.loaded),
        idle=not choice.means_something(control.settings, has_card=control.has_card(state)),
    )


def _ways_to_reload(state: MonitorState, control: LiveControl) -> str:
    reload = find_key("reload").caption
    if state.lost is not None:
        return f"{reload} {STARTS_AGAIN}."
    load_s = state.model.load_s if state.model and not control.changes_device else 0.0
    took = f" (it took {milliseconds(load_s)})" if load_s else ""
    other = find_key("model").caption
    return f"{reload} loads the model again{took}, {other} another; the chat stays."


def reload_words(
    state: MonitorState, control: LiveControl, prospect: Prospect | None
) -> tuple[str, str]:
    """Say what a reload would give, and which key does it; both empty when nothing waits."""
    if not control.waits_for_reload:
        return "", ""
    again = _ways_to_reload(state, control)
    if prospect is None:
        return "What it gives is being worked out …", again
    if prospect.trouble:
        return f"It would not load: {safe_line(prospect.trouble)}", again
    parts = [f"context {prospect.context:,}", f"KV cache {mib(prospect.kv_bytes):,.0f} MiB"]
    if prospect.card_bytes:
        parts.append(f"all of it on the card, {mib(prospect.card_bytes):,.0f} MiB")
    elif control.has_card(state):
        now = state.cache.slots if state.cache else 0
        changes = now and now != prospect.slots
        parts.append(f"expert slots {f'{now:,} → ' if changes else ''}{prospect.slots:,}")
    return "It gives: " + ", ".join(parts) + ".", again


def _live_rows(
    state: MonitorState, control: LiveControl, fixed: frozenset[str]
) -> tuple[SettingRow, ...]:
    reserve, when = NO_CARD, "stays free"
    to_come = control.next_reserve(state)
    if state.settings is not None:
        scale = scale_of(state.ledger.total if state.ledger else 0)
        reserve = f"{scale.text(state.settings.reserve)} MiB"
    elif to_come is not None:
        reserve, when = f"{mib(to_come):,.0f} MiB", "free after the next load"
    keys = f"{find_key('reserve_down').caption}/{find_key('reserve_up').caption}"
    return (
        _alias_row(state, control, fixed),
        SettingRow(
            keys,
            "reserve",
            reserve,
            _note(
                f"{when}; {find_key('set_reserve').caption} types it",
                "vram_reserve_mib",
                fixed,
            ),
            idle=state.settings is None and to_come is None,
        ),
    )


def _alias_row(state: MonitorState, control: LiveControl, fixed: frozenset[str]) -> SettingRow:
    name, value = "head alias", control.alias_words(state) or NO_CARD
    if control.on_real_card:
        return SettingRow(NO_KEY, name, value, NOTHING_LENT, idle=True)
    note = _note("prompts may borrow its memory", "prefill_head_alias", fixed)
    return SettingRow(find_key("alias").caption, name, value, note, idle=state.settings is None)


def _look_rows(look: dict[str, str], fixed: frozenset[str]) -> tuple[SettingRow, ...]:
    return (
        SettingRow(
            find_key("monitor").caption, "monitor", look["monitor"], _note("", "monitor", fixed)
        ),
        SettingRow(
            find_key("thinking").caption, "thinking", look["thinking"], _note("", "thinking", fixed)
        ),
        SettingRow(
            find_key("set_theme").caption, "theme", look["theme"], _note("", "theme", fixed)
        ),
    )


def _note(note: str, field: str, fixed: frozenset[str]) -> str:
    given = "by flag, environment or project" if field in fixed else ""
    return given or note
