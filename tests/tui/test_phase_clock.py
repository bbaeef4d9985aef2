"""A busy app reads late: the time of a phase must end with the phase, not with the reading."""

import re

import pytest

from stratadesk.engine.events import Event, Phase, PhaseChanged
from stratadesk.tui import moment
from stratadesk.tui.bridge import Bridge
from stratadesk.tui.widgets.phase_banner import PhaseBanner
from stratadesk.tui.widgets.status_line import StatusLine
from tests.tui.looking import wait_for_text
from tests.tui.scripted_engine import ScriptedEngine, make_app

BEGAN = 500.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The app's clock, which a test sets."""
    clock = [BEGAN]
    monkeypatch.setattr(moment, "now", lambda: clock[0])
    return clock


async def test_the_clock_of_a_phase_that_is_over_stands_still_until_the_next_is_shown(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "READY")
        engine.say(PhaseChanged(Phase.PROMPT, BEGAN))
        await wait_for_text(pilot, "READING PROMPT")

        def clocks() -> set[str]:
            banner, line = app.screen.query_one(PhaseBanner), app.screen.query_one(StatusLine)
            drawn = banner.picture(60).plain + line.picture(100).plain
            return set(re.findall(r"\d\d:\d\d\.\d", drawn))

        now[0] = BEGAN + 2
        assert clocks() == {"00:02.0"}
        with monkeypatch.context() as busy:
            busy.setattr(Bridge, "read", read_nothing)
            engine.say(PhaseChanged(Phase.DECODING, BEGAN + 3.5))
            await pilot.pause()
            now[0] = BEGAN + 10
            assert "READING PROMPT" in app.screen.query_one(PhaseBanner).picture(60).plain
            assert clocks() == {"00:03.5"}
        await app.on_engine_woke()
        await wait_for_text(pilot, "WRITING")
        assert clocks() == {"00:06.5"}


def read_nothing(_bridge: Bridge) -> tuple[Event, ...]:
    return ()
