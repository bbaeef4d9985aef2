"""What stands in an empty chat: which model is ready, or how far its loading is."""

from textual.content import Content

from stratadesk.engine.events import LoadProgress, Phase
from stratadesk.keys import find_key
from stratadesk.models.guide import is_guide
from stratadesk.tui.figures import bar, clip
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import MUTED, STRONG, TRACK, lines
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
            return loading_rows(state.load, min(width, BAR_CELLS))
        if state.model is None:
            choose = find_key("model").caption
            return lines(Content("No model is loaded"), _muted(f"{choose} chooses one", width))
        name = clip(safe_line(state.model.name), width)
        if state.lost is not None:
            again = find_key("reload").caption
            return lines(Content.styled(name, STRONG), _muted(f"{again} loads it again", width))
        about, hints = (ABOUT_GUIDE, GUIDE_HINTS) if is_guide(state.model.path) else ((), HINTS)
        return lines(
            Content.styled(name, STRONG),
            Content("is ready"),
            *(_muted(text, width) for text in about),
            Content(),
            _muted("   ".join(map(_hint, hints)), width),
        )


class LoadingLine(Section):
    """The same bar above the prompt, for when the chat is not empty."""

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the stage and the bar."""
        return loading_rows(state.load, min(width, BAR_CELLS))


def loading_rows(load: LoadProgress | None, width: int) -> Content:
    """Draw a stage of loading in words, with its bar."""
    if load is None:
        return lines(Content("Opening the model"), Content.styled(bar(0.0, width)[1], MUTED))
    filled, rest = bar(load.done / load.total if load.total else 0.0, width)
    return lines(
        Content(clip(stage_words(load), max(width, BAR_CELLS))),
        Content.assemble((filled, "$primary"), (rest, TRACK)),
    )


def stage_words(load: LoadProgress) -> str:
    """Write a stage with its counts: sizes for bytes, plain counts for the rest."""
    if load.unit == "bytes":
        return f"{load.stage} {format_bytes(load.done)} of {format_bytes(load.total)}"
    first_run = " (first run only)" if load.unit == "kernels" else ""
    return f"{load.stage} {load.done:,} of {load.total:,}{first_run}"


def _hint(key_id: str) -> str:
    key = find_key(key_id)
    return f"{key.caption} {key.label}"


def _muted(text: str, width: int) -> Content:
    return Content.styled(clip(text, width), MUTED)
