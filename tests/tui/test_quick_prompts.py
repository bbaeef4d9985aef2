"""On a small card a loan is over before the screen changes: it must be seen all the same."""

from functools import partial

import pytest

from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Phase,
    PhaseChanged,
    PromptPlanned,
)
from stratadesk.engine.vram.phase_table import HeadPlace, VramState
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.tui import moment
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.monitor_state import MonitorState, advance
from stratadesk.tui.widgets.head_line import head_words, last_loan
from tests.tui import card_script as card
from tests.tui import scripted_engine as script
from tests.tui.card_scenes import SCENES
from tests.tui.looking import text_of, wait_for_text
from tests.tui.scripted_engine import ScriptedEngine, make_app


def app_for() -> StrataDeskApp:
    return make_app(ScriptedEngine(lambda _command: ()))


def quick_prompt(now: float, began: float) -> tuple[Event, ...]:
    """A prompt of 27 ms over the head's bytes, and the first word of the answer."""
    lent = partial(card.memory_phase, layout=Layout.ALIAS)
    return (
        PhaseChanged(Phase.PROMPT, began),
        script.started(1, prompt=17),
        lent(VramState.PROMPT, began + 0.002, head=HeadPlace.OUT),
        PromptPlanned(1, "prompt", "alias", 64, 0, True, 0.1, "to be seen"),
        script.reading(1, 17, 17),
        lent(VramState.RETURNING, began + 0.0267, head=HeadPlace.RETURNING),
        card.memory_phase(VramState.DECODING, began + 0.027, return_s=0.0003),
        PhaseChanged(Phase.DECODING, began + 0.027),
        DecodeProgress(1, 1, 0, now - began, 18, 2_048),
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50), (60, 20)])
async def test_a_prompt_read_between_two_redraws_is_seen_all_the_same(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen changes twice a second: a loan of 25 ms must leave a trace that is read later."""
    now = [10_000.0]
    monkeypatch.setattr(moment, "now", lambda: now[0])
    app = app_for()
    async with app.run_test(size=size) as pilot:
        await app.chat_screen.apply((*SCENES["ready"](now[0]), *quick_prompt(now[0], now[0] - 0.1)))
        await pilot.pause()
        assert "was OUT 25 ms" in text_of(app)
        if size != (60, 20):
            assert "READ" in text_of(app)
            assert "27 ms" in text_of(app)
            assert "WRITING" not in text_of(app)
        now[0] += 1
        await wait_for_text(pilot, "WRITING")
        await app.chat_screen.apply((PhaseChanged(Phase.READY, now[0]),))
        await pilot.pause()
        assert "was OUT 25 ms" in text_of(app)
        if size[0] >= 120:
            assert "in · was OUT 25 ms · back 0.3 ms" in text_of(app)


async def test_a_prompt_that_was_seen_being_read_is_not_told_again(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 36)) as pilot:
        events = quick_prompt(still, still - 0.1)
        await app.chat_screen.apply((*SCENES["ready"](still), *events[:5]))
        await pilot.pause()
        assert "READING PROMPT" in text_of(app)
        assert "OUT · 333 MiB" in text_of(app)
        await app.chat_screen.apply(events[5:])
        await wait_for_text(pilot, "WRITING")
        assert "WAS READ" not in text_of(app)


def test_a_prompt_that_left_the_head_alone_is_not_said_to_have_had_it(still: float) -> None:
    for scene in ("ready", "loan", "decoding"):
        state = MonitorState()
        for event in SCENES[scene](still):
            state = advance(state, event)
        assert last_loan(state.trace) == ""
        assert "was OUT" not in " ".join(head_words(state.vram, state.trace))
