"""The monitor must show what the engine said last, and nothing of a model that is gone."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from stratadesk.engine.events import Event, ModelLoaded, Phase, PhaseChanged
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.widgets.context_meter import ContextMeter
from stratadesk.tui.widgets.memory_meter import MemoryMeter, memory_shares
from stratadesk.tui.widgets.model_facts import ModelFacts
from stratadesk.tui.widgets.section import Section
from stratadesk.tui.widgets.speed_figures import SpeedFigures, answer_speed, prompt_speed
from stratadesk.tui.widgets.status_line import StatusLine
from stratadesk.tui.widgets.title_bar import TitleBar
from tests.tui import scripted_engine as script

SECTIONS = (SpeedFigures, ContextMeter, MemoryMeter, ModelFacts, StatusLine, TitleBar)


def after(*events: Event) -> MonitorState:
    state = MonitorState()
    for event in events:
        state = advance(state, event)
    return state


def drawn(section: type[Section], state: MonitorState, width: int) -> str:
    return section().draw(state, width).plain


STORY = (
    *script.loaded(),
    script.phase(Phase.PROMPT),
    script.started(1, prompt=15_934, reused=412),
    script.reading(1, 8_192, 15_934, reused=412),
    script.phase(Phase.DECODING),
    script.writing(1, 240, thinking=40, context=16_174),
    script.finished(1, "text", tokens=240, prompt=15_934, reused=412, context=16_175),
    script.phase(Phase.READY),
)


def test_a_speed_is_shown_in_its_phase_alone() -> None:
    assert prompt_speed(after(*STORY[:6])) == "– tok/s"
    assert prompt_speed(after(*STORY[:7])) == "1,000 tok/s"
    assert answer_speed(after(*STORY[:7])) == ""
    assert prompt_speed(after(*STORY[:8])) == ""
    assert answer_speed(after(*STORY[:9])) == "20.0 tok/s"
    assert prompt_speed(after(*STORY)) == answer_speed(after(*STORY)) == ""


def test_the_context_counts_reused_and_read_tokens_then_follows_the_engine() -> None:
    assert after(*STORY[:6]).context_used == 412
    assert after(*STORY[:7]).context_used == 8_604
    assert after(*STORY).context_used == 16_175
    assert "16,175 / 32,768" in drawn(ContextMeter, after(*STORY), 40)


def test_kernels_are_told_apart_from_the_loading_where_they_took_long() -> None:
    (model,) = (event for event in script.loaded() if isinstance(event, ModelLoaded))
    for kernels_s, words in ((0.4, "34 ms"), (42.1, "34 ms, kernels 42.1 s")):
        told = replace(model, load_s=0.034, kernels_s=kernels_s)
        assert drawn(ModelFacts, after(*script.loaded(), told), 40).endswith(f" {words}")


def test_no_column_moves_through_a_whole_answer() -> None:
    for section in SECTIONS:
        for width in (25, 40):
            heights = {
                drawn(section, after(*STORY[:count]), width).count("\n")
                for count in range(len(STORY) + 1)
            }
            assert len(heights) == 1, section


@pytest.mark.parametrize("section", SECTIONS)
def test_no_row_is_wider_than_its_column(section: type[Section]) -> None:
    narrowest = 5 if section in (StatusLine, TitleBar) else 25
    for width in range(narrowest, 60):
        for count in range(len(STORY) + 1):
            for row in drawn(section, after(*STORY[:count]), width).split("\n"):
                assert cell_len(row) <= width, row


def test_the_owners_of_memory_add_up() -> None:
    state = after(*STORY)
    assert state.memory is not None
    assert sum(share.n_bytes or 0 for share in memory_shares(state.memory)) == state.memory.total


def test_without_a_sample_memory_is_unknown_not_zero() -> None:
    assert "0.0" not in drawn(MemoryMeter, MonitorState(), 40)


def test_loading_another_model_forgets_the_old_one() -> None:
    state = after(*STORY, PhaseChanged(Phase.LOADING, 1.0))
    assert state.model is None
    assert state.last is None
    assert state.context_total == 0
    assert state.memory is not None


def test_a_failed_answer_leaves_the_model_shown() -> None:
    state = after(*STORY, script.phase(Phase.FAILED), script.phase(Phase.READY))
    assert state.model is not None


def test_the_clock_runs_only_while_the_engine_works() -> None:
    assert after(PhaseChanged(Phase.PROMPT, 1.0)).busy
    assert not after(*STORY).busy
