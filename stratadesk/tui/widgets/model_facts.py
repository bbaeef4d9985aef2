"""What is known of the loaded model."""

from textual.content import Content

from stratadesk.engine.events import ModelLoaded
from stratadesk.engine.load_report import KERNELS_TOLD_S
from stratadesk.tui.figures import NO_VALUE, clip, milliseconds
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.sanitise import safe_line
from stratadesk.tui.widgets.drawing import STRONG, lines, row
from stratadesk.tui.widgets.section import Section
from stratadesk.units import format_bytes

DEVICES = {"host": "CPU", "cuda": "CUDA"}


class ModelFacts(Section):
    """The model's name, then one fact a row, the weightiest first."""

    watches = ("model",)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the name and six facts."""
        name = clip(safe_line(state.model.name), width) if state.model else "No model"
        return lines(
            Content.styled(name, STRONG),
            *(
                row(label, Content(clip(value, width - 5)), width)
                for label, value in model_facts(state.model)
            ),
        )


def model_facts(model: ModelLoaded | None) -> tuple[tuple[str, str], ...]:
    """Return label and value of each fact, a dash for each without a model."""
    labels = ("architecture", "file", "runs on", "KV cache", "state", "template", "loaded in")
    if model is None:
        return tuple((label, NO_VALUE) for label in labels)
    values = (
        safe_line(model.architecture),
        format_bytes(model.file_bytes),
        DEVICES.get(model.device, model.device),
        format_bytes(model.kv_bytes),
        format_bytes(model.state_bytes),
        "the model's" if model.template == "model" else model.template,
        loading_words(model),
    )
    return tuple(zip(labels, values, strict=True))


def loading_words(model: ModelLoaded) -> str:
    """Say how long loading took; kernels, which are kept for the next time, by themselves."""
    took = milliseconds(model.load_s)
    worth = model.kernels_s >= KERNELS_TOLD_S
    return f"{took}, kernels {model.kernels_s:.1f} s" if worth else took
