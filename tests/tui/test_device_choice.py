"""A chat that cannot leave a card that stays away can only be read.

F9 chooses the device; what was chosen arrives in the program that starts after a loss, with the
chat, whatever the first start said, and takes no memory settings along that are another device's.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.parser import build_parser
from stratadesk.engine.commands import (
    Command,
    Device,
    EngineSettings,
    KvFormat,
    LoadModel,
    SetReserve,
)
from stratadesk.engine.events import Failure
from stratadesk.engine.forecast import Forecast
from stratadesk.engine.vram.plan_settings import HeadAlias
from stratadesk.models.guide import VARIABLE
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.handover import ChatRecord
from stratadesk.tui.options import AppOptions
from stratadesk.units import MIB
from tests.tui import card_script as card
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import MODEL, Found, ScriptedEngine, Search, make_app
from tests.tui.test_starting_again import AGAIN, Kept, ask, lost

GUIDE = Path("guide.gguf")
SIZE = (100, 40)
WAITS = "loads the model again"


@asynccontextmanager
async def started(
    *flags: str,
    model: Path = MODEL,
    kept: dict[str, object] | None = None,
    seen: list[EngineSettings] | None = None,
    chat: ChatRecord | None = None,
    settings: EngineSettings | None = None,
    hand_over: Kept | None = None,
) -> AsyncIterator[tuple[StrataDeskApp, ScriptedEngine, Pilot[None]]]:
    """An app started with these flags, whose engine loads everything."""
    given, decisions = with_kept(build_parser().parse_args([*flags]))

    def foresee(_model: Path, settings: EngineSettings) -> Forecast:
        if seen is not None:
            seen.append(settings)
        on_card = 300 * MIB if settings.device is Device.CUDA else 0
        return Forecast(4_096, 160 * MIB, 0, card_bytes=on_card)

    engine = ScriptedEngine()
    options = AppOptions(
        cards=GuideCard(given),
        remember=(kept if kept is not None else {}).__setitem__,
        foresee=foresee,
        fixed=decisions.fixed,
        hand_over=hand_over,
        chat=chat,
    )
    app = make_app(
        engine,
        model=model,
        found=Search([Found("the guide", GUIDE), Found("another", MODEL)]),
        settings=settings or engine_settings(given),
        options=options,
    )
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await wait_for_text(pilot, "● READY")
        yield app, engine, pilot


@pytest.fixture(autouse=True)
def guide_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(GUIDE))


def loads(engine: ScriptedEngine) -> list[EngineSettings]:
    commands: list[Command] = engine.commands
    return [command.settings for command in commands if isinstance(command, LoadModel)]


async def reload(pilot: Pilot[None], engine: ScriptedEngine) -> EngineSettings:
    before = len(loads(engine))
    await pilot.press("f8")
    await wait_until(pilot, lambda: len(loads(engine)) > before, "the reload")
    await wait_for_text(pilot, "● READY")
    return loads(engine)[-1]


def row(app: StrataDeskApp, name: str) -> str:
    """The row of the settings that has this name."""
    return next(each for each in rows_of(app) if f" {name} " in each)


async def test_the_device_counts_once_the_model_is_loaded_again_and_is_kept() -> None:
    kept: dict[str, object] = {}
    seen: list[EngineSettings] = []
    async with started(kept=kept, seen=seen) as (app, engine, pilot):
        await pilot.press("f9")
        await wait_for_text(pilot, "host is the CPU, cuda a card")
        assert "  host " in row(app, "device")
        await pilot.press("d")
        await wait_for_text(pilot, "* cuda")
        await wait_for_text(pilot, "It gives: context 4,096")
        assert "all of it on the card, 300 MiB." in text_of(app)
        assert f"F8 {WAITS}, F2 another; the chat stays." in text_of(app)
        assert "(it took" not in text_of(app), "that was on the other device"
        assert seen[-1].device is Device.CUDA
        assert len(loads(engine)) == 1
        settings = await reload(pilot, engine)
        assert (settings.device, settings.machine) == (Device.CUDA, None)
        assert settings.plan is not None
        assert settings.plan.reserve == 590 * MIB
        await wait_until(pilot, lambda: kept == {"device": "cuda"}, f"kept: {kept}")


async def test_what_is_taken_back_leaves_nothing_waiting_and_other_choices_stay() -> None:
    async with started("--device", "cuda", "-c", "8192") as (app, engine, pilot):
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* host")
        await pilot.press("d")
        await wait_until(pilot, lambda: "* host" not in text_of(app), "taken back")
        assert WAITS not in text_of(app)
        await pilot.press("k", "d", "x")
        await wait_for_text(pilot, "* 16,384")
        assert "* q8_0" in text_of(app)
        await pilot.press("d")
        await wait_until(pilot, lambda: "* host" not in text_of(app), "taken back again")
        settings = await reload(pilot, engine)
        assert settings.device is Device.CUDA
        assert (settings.kv_format, settings.max_context) == (KvFormat.Q8_0, 16_384)


async def test_a_card_is_kept_for_the_next_start_once_a_model_lies_there() -> None:
    """Kept before, a card that does not work would stop every later start."""
    kept: dict[str, object] = {}
    async with started(kept=kept) as (app, engine, pilot):
        engine.silent = True
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* cuda")
        before = len(loads(engine))
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(loads(engine)) > before, "the reload")
        engine.say(Failure(None, "No usable GPU", "There is no driver.", "", 4, loading=True))
        await wait_for_text(pilot, "There is no driver.")
        assert kept == {}
        engine.silent = False
        await reload(pilot, engine)
        await wait_until(pilot, lambda: kept == {"device": "cuda"}, f"kept: {kept}")
        assert app.is_running


async def test_a_device_that_a_flag_decides_is_marked() -> None:
    async with started("--device", "host") as (app, _, pilot):
        await pilot.press("f9")
        await wait_for_text(pilot, "With a reload")
        assert "by flag, environment or project" in row(app, "device")
        assert text_of(app).count("by flag, environment or project") == 1


async def test_after_a_loss_the_cpu_goes_on_with_the_chat_whatever_the_flag_said() -> None:
    kept: dict[str, object] = {}
    handed = Kept()
    flags = ("--device", "cuda", "--vram-reserve-mib", "300")
    async with started(*flags, kept=kept, hand_over=handed) as (app, engine, pilot):
        request = await ask(pilot, engine, "one")
        engine.say(script.started(request), script.said(request, "Half an ans"), *lost(request))
        await wait_for_text(pilot, "GPU LOST")
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* host")
        assert "F8 starts StrataDesk again and keeps the chat." in text_of(app)
        await pilot.press("f8")
        await wait_until(pilot, lambda: not app.is_running, "the app has left")
    assert kept == {"device": "host"}
    (handover,) = handed.handovers
    wanted = EngineSettings(device=Device.HOST)
    assert handover.settings == wanted, "no plan and no machine: the host's memory is RAM"
    async with started(
        *flags, settings=handover.settings, chat=handover.chat, hand_over=handed
    ) as (app, engine, pilot):
        await wait_for_text(pilot, AGAIN)
        await wait_for_text(pilot, "Half an ans")
        assert loads(engine) == [wanted]
        await pilot.press("f9")
        await wait_for_text(pilot, "With a reload")
        assert "  host " in row(app, "device")


async def test_a_simulated_card_comes_back_as_it_was() -> None:
    async with started("--vram-mib", "6000") as (app, engine, pilot):
        first = loads(engine)[0]
        assert first.machine is not None
        await pilot.press("f9", "d")
        settings = await reload(pilot, engine)
        assert (settings.device, settings.machine) == (Device.CUDA, None)
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* host")
        assert await reload(pilot, engine) == first
        assert app.is_running


async def test_the_guide_has_its_own_card_on_the_host_only_and_none_of_a_real_ones_flags() -> None:
    kept: dict[str, object] = {}
    flags = ("--device", "cuda", "--vram-reserve-mib", "300")
    async with started(*flags, model=GUIDE, kept=kept) as (_, engine, pilot):
        real = loads(engine)[0]
        assert real.plan is not None
        assert (real.plan.reserve, real.machine) == (300 * MIB, None)
        await pilot.press("f9", "d", "x")
        await wait_for_text(pilot, "* 4,096")
        made_up = await reload(pilot, engine)
        assert made_up.machine is not None
        assert made_up.plan is not None
        assert (made_up.machine.card, made_up.plan.reserve) == (24 * MIB, 8 * MIB)
        assert made_up.max_context == 4_096
        await wait_until(pilot, lambda: kept == {"device": "host"}, f"kept: {kept}")
        await pilot.press("f9", "d")
        assert await reload(pilot, engine) == real
        await wait_until(pilot, lambda: kept == {"device": "cuda"}, f"kept: {kept}")


async def test_another_model_is_taken_on_the_device_that_was_chosen() -> None:
    async with started("--device", "cuda") as (_, engine, pilot):
        await pilot.press("f9", "d", "f2")
        await wait_for_text(pilot, "2 models found")
        await pilot.press(*"guide", "enter")
        await wait_until(pilot, lambda: len(loads(engine)) == 2, "a load")
        settings = loads(engine)[-1]
        assert settings.device is Device.HOST
        assert settings.machine is not None
        assert settings.machine.card == 24 * MIB
        await wait_for_text(pilot, "● READY")
        await pilot.press("f2")
        await wait_for_text(pilot, "2 models found")
        await pilot.press(*"another", "enter")
        await wait_until(pilot, lambda: len(loads(engine)) == 3, "a load")
        assert loads(engine)[-1] == replace(EngineSettings(), device=Device.HOST)


async def test_expert_slots_are_offered_for_the_card_to_come_not_for_the_one_that_is() -> None:
    async with started("--device", "cuda") as (app, _, pilot):
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* host")
        await pilot.press("e")
        await wait_for_text(pilot, "This model is on no card")
        assert "expert slots" not in text_of(app).partition("It gives")[2]


async def test_a_reserve_set_on_the_guides_card_is_not_that_of_the_real_one_to_come() -> None:
    """6 MiB are a quarter of a card of 24 MiB; on a real one they leave other programs nothing."""
    kept: dict[str, object] = {}
    async with started(model=GUIDE, kept=kept) as (app, engine, pilot):
        await app.chat_screen.apply((card.settings(reserve=8 * MIB),))
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* cuda")
        await pilot.press("f3", "r", "6", "enter")
        settings = await reload(pilot, engine)
        assert engine.commands.index(SetReserve(6 * MIB)) < engine.commands.index(
            LoadModel(GUIDE, settings)
        ), "it was for the card that was there, however soon that went"
        assert settings.plan is not None
        assert (settings.device, settings.plan.reserve) == (Device.CUDA, 590 * MIB)
        assert settings.plan.alias is HeadAlias.AUTO
        await wait_until(pilot, lambda: kept == {"device": "cuda"}, f"kept: {kept}")


async def test_a_reserve_set_on_a_real_card_is_kept_and_not_that_of_the_guides_card() -> None:
    kept: dict[str, object] = {}
    async with started("--device", "cuda", model=GUIDE, kept=kept) as (app, engine, pilot):
        await app.chat_screen.apply((card.settings(),))
        await pilot.press("f9", "d")
        await wait_for_text(pilot, "* host")
        await pilot.press("r", *"700", "enter")
        made_up = await reload(pilot, engine)
        assert made_up.plan is not None
        assert (made_up.device, made_up.plan.reserve) == (Device.HOST, 8 * MIB)
        expected = {"vram_reserve_mib": 700, "device": "host"}
        await wait_until(pilot, lambda: kept == expected, f"kept: {kept}")
        await pilot.press("f9", "d")
        real = await reload(pilot, engine)
        assert real.plan is not None
        assert real.plan.reserve == 700 * MIB


async def test_a_reserve_for_a_real_card_to_come_leaves_the_guides_own_alone() -> None:
    """While the guide loads there is no card to set a reserve on but the one that was chosen."""
    kept: dict[str, object] = {}
    async with started(model=GUIDE, kept=kept) as (app, engine, pilot):
        first = loads(engine)[0]
        await pilot.press("f9")
        await wait_for_text(pilot, "stays free; R types it")
        assert "–" in row(app, "reserve")
        await pilot.press("d", "f5")
        await wait_for_text(pilot, "Reserve 654 MiB from the next load on")
        assert "654 MiB   " in row(app, "reserve")
        assert "free after the next load; R types it" in row(app, "reserve")
        await wait_until(pilot, lambda: kept == {"vram_reserve_mib": 654}, f"kept: {kept}")
        await pilot.press("escape")
        assert await reload(pilot, engine) == first
        assert app.is_running


@pytest.mark.parametrize("between", [("d", "d"), ("escape", "f9", "d")])
async def test_a_reserve_asked_of_a_card_to_come_is_that_of_its_load(
    between: tuple[str, ...],
) -> None:
    kept: dict[str, object] = {}
    async with started(kept=kept) as (app, engine, pilot):
        await pilot.press("f9", "d", "r", *"33", "enter")
        await wait_for_text(pilot, "Reserve 33 MiB from the next load on")
        for key in between:
            await pilot.press(key)
            await pilot.pause()
        await wait_for_text(pilot, "* cuda")
        settings = await reload(pilot, engine)
        assert settings.plan is not None
        assert settings.plan.reserve == 33 * MIB
        await wait_until(
            pilot, lambda: kept == {"device": "cuda", "vram_reserve_mib": 33}, f"kept: {kept}"
        )
        assert app.is_running
