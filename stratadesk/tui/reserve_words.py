"""What a change of the reserve will do, and what it has done, in one line each."""

from stratadesk.engine.card_events import CardSettings, ReservePreviewed
from stratadesk.engine.events import ReserveApplied
from stratadesk.keys import find_key
from stratadesk.tui.figures import plural
from stratadesk.tui.mib import MibScale, scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line

WAITS = "from the next pause on"
THE_MOST = "more cannot be kept free"


def most_kept(settings: CardSettings) -> int | None:
    """The largest reserve worth asking for, in bytes; None where that is not known.

    One that is set may be more: other programs can have taken what it was to keep.
    """
    return None if settings.most is None else max(settings.most, settings.reserve)


def preview_words(state: MonitorState, wanted: int) -> str:
    """Say what a reserve of `wanted` bytes will do, as far as the engine has told."""
    scale = _scale(state)
    now = state.settings.reserve if state.settings else 0
    change = f"Reserve {scale.text(now)} → {scale.text(wanted)} MiB"
    if state.settings and wanted >= now and wanted == most_kept(state.settings):
        change = f"{change}, {THE_MOST}"
    preview = state.preview
    known = preview is not None and preview.reserve == wanted
    effect = f": {_effect(preview, scale)}" if preview and known else " …"
    return f"{change}{effect} · {find_key('stop').caption} takes it back"


def applied_words(state: MonitorState, applied: ReserveApplied) -> str:
    """Say what was reached, and if not the user but another program made it change, why."""
    scale = _scale(state)
    if not applied.done:
        return f"Reserve {scale.text(applied.reserve)} MiB: {safe_line(applied.limitation)}"
    free, slots = f"{scale.text(applied.free)} MiB free", plural(applied.slots, "expert slot")
    if applied.reason:
        return f"{safe_line(applied.reason)}: now {slots}, {free}"
    if applied.limitation and applied.free < applied.reserve:
        asked = f"asked {scale.text(applied.reserve)}, got {scale.text(applied.free)} MiB"
        return f"Reached: {asked}: {safe_line(applied.limitation)}"
    return f"Reached: reserve {scale.text(applied.reserve)} MiB, {free}, {slots}"


def _effect(preview: ReservePreviewed, scale: MibScale) -> str:
    change = preview.slots - preview.slots_before
    sign = "+" if change >= 0 else "−"
    parts = [f"{sign}{plural(abs(change), 'slot')}", f"{scale.text(preview.free)} MiB free"]
    if preview.limitation and preview.free < preview.reserve:
        parts.append(safe_line(preview.limitation))
    elif preview.waits:
        parts.append(WAITS)
    return "; ".join(parts)


def _scale(state: MonitorState) -> MibScale:
    return scale_of(state.ledger.total if state.ledger else 0)
