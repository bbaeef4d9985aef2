"""The monitor: what is it doing, who has the memory, what has just changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical

from stratadesk.tui import moment
from stratadesk.tui.layout import MonitorForm
from stratadesk.tui.moment import Clock
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.card_bar import CardBar
from stratadesk.tui.widgets.card_legend import CardLegend, CardSources
from stratadesk.tui.widgets.context_meter import ContextMeter
from stratadesk.tui.widgets.expert_figures import ExpertFigures
from stratadesk.tui.widgets.free_graph import FreeGraph
from stratadesk.tui.widgets.head_line import HeadLine
from stratadesk.tui.widgets.memory_meter import MemoryMeter
from stratadesk.tui.widgets.model_facts import ModelFacts
from stratadesk.tui.widgets.phase_banner import PhaseBanner
from stratadesk.tui.widgets.ram_line import RamLine
from stratadesk.tui.widgets.reading_plan import PlanReason, ReadingPlan
from stratadesk.tui.widgets.request_timeline import RequestTimeline
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.slot_figures import SlotFigures
from stratadesk.tui.widgets.speed_figures import SpeedFigures

TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the pane; the parts of the least `rank` are the last to give way.

    `leads` puts a blank row above it. `on_card` tells whether it is for a model on a card, for
    one on none, or (None) for both.
    """

    section: Section
    rank: int
    leads: bool = False
    on_card: bool | None = None


class MonitorPane(Vertical):
    """A column that draws one snapshot of the engine; `parts` without room are left out whole.

    `clock` is as for `PhaseBanner`.
    """

    def __init__(self, clock: Clock = moment.read) -> None:
        super().__init__()
        self._state = MonitorState()
        self._fitted: tuple[object, ...] = ()
        self._low = False
        self.parts = (
            Part(PhaseBanner(clock), 0),
            Part(SpeedFigures(), 1, leads=True),
            Part(ReadingPlan(), 8, on_card=True),
            Part(PlanReason(), 10, on_card=True),
            Part(HeadLine(), 4, on_card=True),
            Part(SlotFigures(), 5, on_card=True),
            Part(ExpertFigures(), 7, on_card=True),
            Part(CardBar(), 2, leads=True, on_card=True),
            Part(CardLegend(), 3, on_card=True),
            Part(CardSources(), 4, on_card=True),
            Part(FreeGraph(), 6, leads=True, on_card=True),
            Part(RequestTimeline(), 9, leads=True, on_card=True),
            Part(ContextMeter(), 11, leads=True),
            Part(RamLine(), 12, leads=True, on_card=True),
            Part(MemoryMeter(), 12, leads=True, on_card=False),
            Part(ModelFacts(), 13, leads=True),
        )

    def compose(self) -> ComposeResult:
        """Make the parts in the order in which people ask."""
        for part in self.parts:
            part.section.set_class(part.leads, "-leads")
            yield part.section

    def on_mount(self) -> None:
        """Let figures age while nothing is told."""
        self.set_interval(TICK_S, self._tick)

    def on_resize(self) -> None:
        """Find out what fits."""
        self._fit()

    def show(self, state: MonitorState) -> None:
        """Draw `state` in every part, if there is anything to see."""
        self._state = state
        if not self.display:
            return
        self._fit()
        for part in self.parts:
            part.section.show(state)

    def take_form(self, form: MonitorForm, *, low: bool) -> None:
        """Be a column of that width, without blank rows when `low`, or not there at all."""
        self.display = form in (MonitorForm.BROAD, MonitorForm.WIDE, MonitorForm.NARROW)
        self.set_class(form is MonitorForm.NARROW, "-narrow")
        self.set_class(form is MonitorForm.BROAD, "-broad")
        self.set_class(low, "-low")
        self._low = low

    def _tick(self) -> None:
        if self.display:
            for part in self.parts:
                if part.section.ages:
                    part.section.redraw()

    def _fit(self) -> None:
        """Show the parts that fit, if what that depends on has changed."""
        key = (self.size, self._state.shows_card, self._low)
        if key == self._fitted or not self.size.height:
            return
        self._fitted = key
        shown = fitting(self._wanted(), self.size.height)
        for part in self.parts:
            part.section.display = part in shown

    def _wanted(self) -> list[tuple[Part, int]]:
        """Each part that is of use now, with the rows that it takes."""
        found = []
        for part in self.parts:
            if part.on_card in (None, self._state.shows_card):
                section = part.section
                width = max(self.size.width - section.gutter.width, 1)
                rows = section.draw(self._state, width).plain.count("\n") + 1
                gap = part.leads and not self._low
                found.append((part, rows + section.styles.padding.height + gap))
        return found


def fitting(parts: Sequence[tuple[Part, int]], height: int) -> list[Part]:
    """Return the parts that fit into `height` rows, those of the least rank first to stay."""
    kept, left = [], height
    for part, rows in sorted(parts, key=lambda entry: entry[0].rank):
        if rows <= left:
            kept.append(part)
            left -= rows
    return kept
