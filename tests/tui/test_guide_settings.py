"""A setting chosen for one card must neither get lost, nor be kept for cards it was not meant for.

The guide has a card of its own, on which people try the keys out.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import EngineSettings, KvFormat, LoadModel
from stratadesk.models.guide import VARIABLE
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.options import AppOptions
from stratadesk.tui.screens.settings_screen import OWN_CARD
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import MODEL, Found, ScriptedEngine, Search, make_app

GUIDE = Path("guide.gguf")
SIZE = (120, 36)


@asynccontextmanager
async def desk(
    monkeypatch: pytest.MonkeyPatch, model: Path, kept: dict[str, object]
) -> AsyncIterator[tuple[StrataDeskApp, Pilot[None], ScriptedEngine]]:
    """The app with `model` loaded, the guide and another model to choose from."""
    monkeypatch.setenv(VARIABLE, str(GUIDE))
    given = with_kept(build_parser().parse_args([]))[0]
    engine = ScriptedEngine()
    app = make_app(
        engine,
        model=model,
        found=Search([Found("the guide", GUIDE), Found("another", MODEL)]),
        settings=engine_settings(given),
        options=AppOptions(cards=GuideCard(given), remember=kept.__setitem__),
    )
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        yield app, pilot, engine


async def take(pilot: Pilot[None], engine: ScriptedEngine, name: str) -> EngineSettings:
    """Choose a model with F2; return the settings with which it is loaded."""
    before = len(engine.commands)
    await pilot.press("f2")
    await wait_for_text(pilot, "2 models found")
    await pilot.press(*name, "enter")
    await wait_until(pilot, lambda: len(engine.commands) > before, "a load")
    await wait_for_text(pilot, "READY")
    command = engine.commands[-1]
    assert isinstance(command, LoadModel)
    return command.settings


async def test_f2_takes_a_model_with_what_was_chosen_in_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, object] = {}
    async with desk(monkeypatch, MODEL, kept) as (app, pilot, engine):
        await pilot.press("f9", "x", "k")
        await wait_for_text(pilot, "F2 another")
        settings = await take(pilot, engine, "another")
        assert (settings.max_context, settings.kv_format) == (4_096, KvFormat.Q8_0)
        assert "With a reload" not in text_of(app)
        await wait_until(pilot, lambda: len(kept) == 2, f"kept: {kept}")


async def test_what_was_chosen_and_not_loaded_waits_while_the_guide_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, object] = {}
    async with desk(monkeypatch, MODEL, kept) as (_, pilot, engine):
        await pilot.press("f9", "x", "k")
        settings = await take(pilot, engine, "guide")
        assert (settings.max_context, settings.kv_format) == (0, KvFormat.F16)
        await wait_for_text(pilot, "KV cache q8_0")
        assert kept == {}
        settings = await take(pilot, engine, "another")
        assert (settings.max_context, settings.kv_format) == (4_096, KvFormat.Q8_0)
        wanted = {"max_context": 4_096, "kv_format": "q8_0"}
        await wait_until(pilot, lambda: kept == wanted, f"kept: {kept}")
        settings = await take(pilot, engine, "guide")
        assert (settings.max_context, settings.kv_format) == (0, KvFormat.F16)


async def test_what_is_chosen_on_the_guides_card_is_not_kept_and_not_for_other_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, object] = {}
    async with desk(monkeypatch, GUIDE, kept) as (_, pilot, engine):
        await pilot.press("f9")
        await wait_for_text(pilot, OWN_CARD)
        before = len(engine.commands)
        await pilot.press("k", "x", "f8")
        await wait_until(pilot, lambda: len(engine.commands) > before, "the reload")
        command = engine.commands[-1]
        assert isinstance(command, LoadModel)
        assert (command.settings.max_context, command.settings.kv_format) == (4_096, "q8_0")
        settings = await take(pilot, engine, "another")
        assert (settings.max_context, settings.kv_format) == (0, KvFormat.F16)
        await pilot.press("f9")
        await wait_for_text(pilot, "With a reload")
        assert OWN_CARD not in text_of(pilot.app)
        await pilot.press("t")
        await wait_until(pilot, lambda: kept == {"theme": "strata-light"}, f"kept: {kept}")
