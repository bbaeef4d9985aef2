"""The monitor: what is it doing, who has the memory, what is running."""

from textual.app import ComposeResult
from textual.containers import Vertical

from stratadesk.tui.layout import MonitorForm
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.context_meter import ContextMeter
from stratadesk.tui.widgets.memory_meter import MemoryMeter
from stratadesk.tui.widgets.model_facts import ModelFacts
from stratadesk.tui.widgets.phase_banner import PhaseBanner
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.speed_figures import AnswerSpeed, PromptSpeed


class MonitorPane(Vertical):
    """A column that draws one snapshot of the engine in six parts."""

    def __init__(self) -> None:
        super().__init__()
        self._banner = PhaseBanner()
        self._sections: tuple[Section, ...] = (
            PromptSpeed(),
            AnswerSpeed(),
            ContextMeter(),
            MemoryMeter(),
            ModelFacts(),
        )

    def compose(self) -> ComposeResult:
        """Make the parts in the order in which people ask."""
        yield self._banner
        yield from self._sections

    def show(self, state: MonitorState) -> None:
        """Draw `state` in every part, if there is anything to see."""
        if not self.display:
            return
        self._banner.show(state)
        for section in self._sections:
            section.show(state)

    def take_form(self, form: MonitorForm) -> None:
        """Be the wide or the narrow column, or not there at all."""
        self.display = form in (MonitorForm.WIDE, MonitorForm.NARROW)
        self.set_class(form is MonitorForm.NARROW, "-narrow")
