"""What stands in an empty chat: which model is ready, or how far its loading is."""

from textual.content import Content

from stratadesk.engine.events import LoadCancelled, LoadProgress, Phase
from stratadesk.engine.load_report import OPENING
from stratadesk.keys import find_key
from stratadesk.models.guide import is_guide
from stratadesk.tui.figures import bar, clip, fit
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import MUTED, STRONG, TRACK, lines
from stratadesk.tui.widgets.failure_card import STARTS_AGAIN
from stratadesk.tui.widgets.section import Section
from stratadesk.units import format_bytes

BAR_CELLS = 44
HINTS = ("send", "newline", "help")
GUIDE_HINTS = (*HINTS, "model")
ABOUT_GUIDE = (
    "It knows this program only. Ask it:",
    '"what does head out mean?"',
)


class Opening(Section):
    """A few rows in the middle of the chat."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw what the engine is ready for."""
        if state.phase is Phase.LOADING:
            return loading_rows(state.load, width)
        if state.lost is not None:
            again = f"{find_key('reload').caption} {STARTS_AGAIN}"
            return lines(Content.styled("The GPU is lost", STRONG), _muted(again, width))
        if state.model is None:
            return nothing_rows(state.cancelled, width)
        name = clip(safe_line(state.model.name), width)
        about, hints = (ABOUT_GUIDE, GUIDE_HINTS) if is_guide(state.model.path) else ((), HINTS)
        return lines(
            Content.styled(name, STRONG),
            Content("is ready"),
            *(_muted(text, width) for text in about),
            Content(),
            _muted("   ".join(map(_hint, hints)), width),
        )


class LoadingLine(Section):
    """The same above the prompt, for when the chat is not empty."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the stage, which model loads, and the bar."""
        load = state.load
        facts = (stage_words(load), safe_line(load.name), _size(load)) if load else (OPENING,)
        return lines(Content(fit(facts, width)), bar_row(load, width))


def nothing_rows(cancelled: LoadCancelled | None, width: int) -> Content:
    """Say that no model is loaded, why if the user wanted it so, and which keys change that."""
    choose = f"{find_key('model').caption} chooses one"
    if cancelled is None:
        return lines(Content("No model is loaded"), _muted(choose, width))
    return lines(
        Content("No model is loaded"),
        Content(clip(f"Loading {safe_line(cancelled.file)} was cancelled", width)),
        _muted(f"{find_key('reload').caption} loads it again   {choose}", width),
    )


def loading_rows(load: LoadProgress | None, width: int) -> Content:
    """Draw which model loads, how large it is as soon as that is known, the stage and the bar."""
    name, size = (safe_line(load.name), _size(load)) if load else ("", "")
    return lines(
        Content.styled(clip(name or "The model", width), STRONG),
        _muted(f"{size} · is loading" if size else "is loading", width),
        Content(clip(stage_words(load) if load else OPENING, width)),
        bar_row(load, width),
    )


def bar_row(load: LoadProgress | None, width: int) -> Content:
    """Draw how far a stage is; the bar is empty where nothing is counted."""
    share = load.done / load.total if load and load.total else 0.0
    filled, rest = bar(share, min(width, BAR_CELLS))
    return Content.assemble((filled, "$primary"), (rest, TRACK))


def stage_words(load: LoadProgress) -> str:
    """Write a stage with its counts: sizes for bytes, plain counts for the rest."""
    if not load.unit:
        return load.stage
    if load.unit == "bytes":
        return f"{load.stage} {format_bytes(load.done)} of {format_bytes(load.total)}"
    first_run = " (first run only)" if load.unit == "kernels" else ""
    return f"{load.stage} {load.done:,} of {load.total:,}{first_run}"


def _size(load: LoadProgress) -> str:
    return format_bytes(load.file_bytes) if load.file_bytes else ""


def _hint(key_id: str) -> str:
    key = find_key(key_id)
    return f"{key.caption} {key.label}"


def _muted(text: str, width: int) -> Content:
    return Content.styled(clip(text, width), MUTED)
