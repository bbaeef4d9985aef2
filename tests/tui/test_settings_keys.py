"""Settings that forget a choice, keep it where they must not, or hide what they will do, mislead.

The settings screen of the running app, over a model on a card.
"""

import pytest

from stratadesk.engine.commands import (
    EngineSettings,
    KvFormat,
    LoadModel,
    PreviewReserve,
    SetReserve,
)
from stratadesk.engine.forecast import Forecast
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import StrataDeskError
from stratadesk.tui.options import AppOptions
from stratadesk.units import MIB
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.test_live_keys import RELOADED, commands, desk, quick

__all__ = ["quick"]


async def test_f9_opens_the_settings_and_esc_closes_them() -> None:
    async with desk() as (app, _, pilot, _):
        await pilot.press("f9")
        await wait_for_text(pilot, "With a reload")
        await pilot.press("escape")
        await wait_until(pilot, lambda: "With a reload" not in text_of(app), "closed")


async def test_a_low_screen_says_that_there_is_more_and_the_pages_show_it() -> None:
    """A choice whose row cannot be seen changes unseen, and so does what F8 will do."""
    settings = EngineSettings(plan=PlanSettings())
    async with desk(settings=settings) as (app, _, pilot, _):
        await pilot.resize_terminal(40, 12)
        await pilot.press("f9", "k")
        await wait_for_text(pilot, "more below · PgDn")
        assert "* q8_0" not in text_of(app)
        await pilot.press("pagedown")
        await wait_for_text(pilot, "* q8_0")
        await pilot.press("pagedown", "pagedown")
        await wait_until(pilot, lambda: "more below" not in text_of(app), "the end")
        assert "F8 loads the model again" in text_of(app)
        assert "more above · PgUp" in text_of(app)
        await pilot.press("pageup", "pageup", "pageup")
        await wait_for_text(pilot, "At once")
        await pilot.resize_terminal(100, 40)
        await wait_until(pilot, lambda: "more below" not in text_of(app), "all is there")


async def test_settings_that_need_a_reload_wait_for_f8() -> None:
    kept: dict[str, object] = {}
    options = AppOptions(
        remember=kept.__setitem__,
        foresee=lambda _path, settings: Forecast(8_192, 160 * MIB, 2_900, 590 * MIB),
    )
    settings = EngineSettings(plan=PlanSettings())
    async with desk(settings=settings, options=options) as (app, engine, pilot, _):
        before = len(commands(engine, LoadModel))
        await pilot.press("f9", "k", "x", "x", "c", "e")
        await wait_for_text(pilot, RELOADED)
        for row in ("* q8_0", "* 8,192", "* 256", "* 1"):
            assert row in text_of(app)
        assert "F8 loads the model again (it took 5.2 s)" in text_of(app)
        assert len(commands(engine, LoadModel)) == before
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(commands(engine, LoadModel)) > before, "the reload")
        command = commands(engine, LoadModel)[-1]
        assert isinstance(command, LoadModel)
        loaded = command.settings
        assert (loaded.kv_format, loaded.max_context) == (KvFormat.Q8_0, 8_192)
        assert (loaded.chunk, loaded.plan and loaded.plan.expert_cache) == (256, 1)
        wanted = {"kv_format": "q8_0", "max_context": 8_192, "prefill": 256, "expert_cache": 1}
        await wait_until(pilot, lambda: kept == wanted, "they were kept")


async def test_what_would_not_load_says_why() -> None:
    options = AppOptions(foresee=lambda _path, _settings: Forecast(trouble="412 MiB short."))
    async with desk(options=options) as (_, _, pilot, _):
        await pilot.press("f9", "x")
        await wait_for_text(pilot, "It would not load: 412 MiB short.")


async def test_esc_forgets_what_waits_for_a_reload() -> None:
    async with desk() as (app, engine, pilot, _):
        before = len(commands(engine, LoadModel))
        await pilot.press("f9", "k", "escape")
        await wait_until(pilot, lambda: "With a reload" not in text_of(app), "closed")
        assert "F8" not in text_of(app)
        await pilot.press("f9")
        await wait_for_text(pilot, "f16")
        assert len(commands(engine, LoadModel)) == before


@pytest.mark.usefixtures("quick")
async def test_the_reserve_can_be_typed() -> None:
    async with desk() as (_, engine, pilot, _):
        await pilot.press("f9", "r", *"1024", "enter")
        await wait_for_text(pilot, "Reached: reserve 1,024 MiB")
        assert commands(engine, SetReserve) == [SetReserve(1024 * MIB)]


async def test_typing_something_else_is_refused_in_words() -> None:
    async with desk() as (_, engine, pilot, _):
        await pilot.press("f9", "r", "enter")
        await wait_for_text(pilot, "whole number of MiB")
        assert not commands(engine, PreviewReserve)


async def test_live_keys_work_in_the_settings_too() -> None:
    async with desk() as (_, _, pilot, _):
        await pilot.press("f9", "f3")
        await wait_for_text(pilot, "head alias      on")
        await pilot.press("f6")
        await wait_for_text(pilot, "monitor         narrow")
        await pilot.press("f7")
        await wait_for_text(pilot, "thinking        shown")
        await pilot.press("t")
        await wait_for_text(pilot, "theme           strata-light")


async def test_the_look_is_kept() -> None:
    kept: dict[str, object] = {}
    async with desk(options=AppOptions(remember=kept.__setitem__)) as (_, _, pilot, _):
        await pilot.press("f6", "f7", "f9", "t")
        wanted = {"monitor": "narrow", "thinking": "shown", "theme": "strata-light"}
        await wait_until(pilot, lambda: kept == wanted, f"kept: {kept}")


async def test_what_cannot_be_kept_is_said_and_the_app_goes_on() -> None:
    def refuse(key: str, value: object) -> None:
        raise StrataDeskError(f"{key} = {value} could not be written.")

    async with desk(options=AppOptions(remember=refuse)) as (app, _, pilot, _):
        await pilot.press("f6")
        await wait_for_text(pilot, "Not kept for the next start")
        assert app.is_running


async def test_settings_given_for_this_run_are_marked() -> None:
    options = AppOptions(fixed=frozenset({"kv_format"}))
    async with desk(options=options) as (_, _, pilot, _):
        await pilot.press("f9")
        await wait_for_text(pilot, "by flag, environment or project")
