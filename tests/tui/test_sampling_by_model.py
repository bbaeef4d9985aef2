"""A model that is to answer without chance must do so however it came to be loaded."""

from pathlib import Path

from stratadesk.engine.commands import Generate, SamplingSettings
from stratadesk.tui.options import AppOptions
from stratadesk.tui.ports import OneCard
from tests.tui.looking import wait_for_text, wait_until
from tests.tui.scripted_engine import MODEL, Found, ScriptedEngine, Search, make_app

OTHER = Path("other.gguf")


class Sober(OneCard):
    """Takes the likeliest word with one model alone."""

    def sampling(self, model: Path, usual: SamplingSettings) -> SamplingSettings:
        """Answer `MODEL` greedily."""
        return SamplingSettings(temperature=0.0) if model == MODEL else usual


async def test_each_model_answers_as_is_meant_for_it() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, found=Search([Found("other", OTHER)]), options=AppOptions(cards=Sober()))
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        await pilot.press("escape", "f2")
        await wait_for_text(pilot, "1 model found")
        await pilot.press("enter")
        await wait_for_text(pilot, "READY")
        await pilot.press("ctrl+n", "b", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "another request")
    asked = [command for command in engine.commands if isinstance(command, Generate)]
    assert [request.sampling.temperature for request in asked] == [0.0, 0.8]
