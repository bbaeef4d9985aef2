"""A model that is to answer without chance, or remembers little, does so however it was loaded."""

from collections.abc import Iterable
from pathlib import Path

from stratadesk.engine.commands import Command, Generate, SamplingSettings
from stratadesk.engine.events import Event
from stratadesk.tui.options import AppOptions
from stratadesk.tui.ports import OneCard
from tests.tui import scripted_engine as script
from tests.tui.looking import wait_for_text, wait_until
from tests.tui.scripted_engine import MODEL, Found, ScriptedEngine, Search, make_app

OTHER = Path("other.gguf")


class Sober(OneCard):
    """Takes the likeliest word with one model alone."""

    def sampling(self, model: Path, usual: SamplingSettings) -> SamplingSettings:
        """Answer `MODEL` greedily."""
        return SamplingSettings(temperature=0.0) if model == MODEL else usual

    def remembered(self, model: Path) -> int | None:
        """Tell `MODEL` nothing again."""
        return 0 if model == MODEL else None


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


def answer(command: Command) -> Iterable[Event]:
    """Answer each question at once."""
    if not isinstance(command, Generate):
        return script.load_reply(command)
    number = command.request_id
    text = f"answer {number}"
    return script.started(number), script.said(number, text), script.finished(number, text)


async def test_each_model_is_told_as_much_again_as_it_can_use() -> None:
    engine = ScriptedEngine(answer)
    app = make_app(engine, found=Search([Found("other", OTHER)]), options=AppOptions(cards=Sober()))
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        for number in (1, 2):
            await pilot.press("q", "enter")
            await wait_for_text(pilot, f"answer {number}")
        await pilot.press("f2")
        await wait_for_text(pilot, "1 model found")
        await pilot.press("enter")
        await wait_for_text(pilot, "READY")
        await pilot.press("q", "enter")
        await wait_for_text(pilot, "answer 3")
    assert [len(request.messages or ()) for request in engine.requests] == [1, 1, 5]
