"""A key for memory that a real card cannot share out yet must say so, and choose nothing."""

import re

import pytest

from stratadesk.engine.commands import Device, EngineSettings, LoadModel, SetHeadAlias
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.tui.options import AppOptions
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.test_live_keys import commands, desk

REAL = EngineSettings(device=Device.CUDA, plan=PlanSettings())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["f3"], "cannot borrow the head's memory on a"),
        (["f9", "e"], "All of this model stays on the card"),
        (["f9", "c"], "All of this model stays on the card"),
    ],
)
async def test_what_a_real_card_does_not_do_is_said(keys: list[str], said: str) -> None:
    kept: list[tuple[str, object]] = []
    options = AppOptions(remember=lambda *choice: kept.append(choice))
    async with desk(settings=REAL, options=options) as (app, engine, pilot, _):
        await pilot.press(*keys)
        await wait_for_text(pilot, said)
        assert not app._control.waits_for_reload
        assert not commands(engine, SetHeadAlias)
        assert kept == []


async def test_keys_that_a_real_card_refuses_are_not_offered() -> None:
    async with desk(settings=REAL) as (app, _, pilot, _):
        assert "F4/F5 reserve 590" in text_of(app)
        assert "F3" not in text_of(app)
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert "Reserve up" in titles
        assert not any("alias" in title for title in titles)
        await pilot.press("f9")
        await wait_for_text(pilot, "With a reload")
        for row in ("head alias .* unsupported", "chunk +8 +fixed", "expert slots +all +resident"):
            assert re.search(f" – +{row}", text_of(app)), row


async def test_what_it_can_do_differently_waits_for_a_reload() -> None:
    async with desk(settings=REAL) as (_, engine, pilot, _):
        await pilot.press("f9", "k")
        await wait_for_text(pilot, "q8_0")
        before = len(commands(engine, LoadModel))
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(commands(engine, LoadModel)) > before, "the reload")
