"""A key that changes memory without saying so first, or says what is not so, costs trust.

Each key of the live settings is pressed in the running app; what the engine is told, what stands
on screen before and after, and what is kept for the next start are looked at.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from stratadesk.engine.card_events import CardSettings, DeviceLost, ReservePreviewed
from stratadesk.engine.commands import (
    Command,
    Device,
    EngineSettings,
    LoadModel,
    PreviewReserve,
    SetHeadAlias,
    SetReserve,
)
from stratadesk.engine.events import Event, Failure, ModelLoaded, Phase, ReserveApplied
from stratadesk.engine.vram.phase_table import VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.engine.vram.states import MemoryState
from stratadesk.tui import passing_words, reserve_dial
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.options import AppOptions
from stratadesk.tui.reserve_words import applied_words, preview_words
from stratadesk.units import MIB
from tests.tui import card_script as card
from tests.tui import scripted_engine as script
from tests.tui.looking import text_of, wait_for_text, wait_until

SIZE = (120, 36)
RELOADED = "context 8,192, KV cache 160 MiB, expert slots 2,616 → 2,900"


class Card:
    """Answers live settings as an engine does that reads no prompt."""

    def __init__(self) -> None:
        self.settings: CardSettings = card.settings()
        self.slots = card.SLOTS
        self.refuses = False

    def reply(self, command: Command) -> Iterable[Event]:
        match command:
            case PreviewReserve(reserve):
                slots = self._slots(reserve)
                return (
                    ReservePreviewed(
                        self.settings.reserve, reserve, self.slots, slots, reserve, waits=False
                    ),
                )
            case SetReserve(reserve):
                self.slots = self._slots(reserve)
                alias = self.settings.alias
                self.settings = card.settings(alias, reserve=reserve)
                return ReserveApplied(reserve, reserve, self.slots, True, ""), self.settings
            case SetHeadAlias(alias):
                if self.refuses:
                    return (Failure(None, "Bad usage", "The head is never lent.", "", 2),)
                self.settings = card.settings(alias)
                return (self.settings,)
        return ()

    def _slots(self, reserve: int) -> int:
        return self.slots - (reserve - self.settings.reserve) * 40 // (64 * MIB)


@asynccontextmanager
async def desk(
    *,
    on_card: bool = True,
    settings: EngineSettings | None = None,
    options: AppOptions | None = None,
) -> AsyncIterator[tuple[StrataDeskApp, script.ScriptedEngine, Pilot[None], Card]]:
    """An app whose model is on a card, or on none."""
    simulated = Card()
    engine = script.ScriptedEngine(simulated.reply)
    app = script.make_app(engine, settings=settings, options=options or AppOptions())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        events = card.loaded(card_time()) if on_card else script.loaded()
        await app.chat_screen.apply(events)
        await pilot.pause()
        yield app, engine, pilot, simulated


def card_time() -> float:
    """Now, by the app's clock."""
    from stratadesk.tui import moment

    return moment.now()


def model_thinks(app: StrataDeskApp) -> bool:
    model = app.chat_screen.state.model
    return model is not None and model.thinks


def commands(engine: script.ScriptedEngine, kind: type[Command]) -> list[Command]:
    return [command for command in engine.commands if isinstance(command, kind)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve_dial, "APPLIES_AFTER_S", 0.3)


async def test_the_footer_shows_the_present_values() -> None:
    async with desk() as (app, _, _, _):
        assert "F3 alias auto  F4/F5 reserve 590" in text_of(app)


async def test_without_a_card_the_keys_say_so_and_tell_the_engine_nothing() -> None:
    async with desk(on_card=False) as (app, engine, pilot, _):
        assert "F3" not in text_of(app)
        await pilot.press("f3", "f4", "f5")
        await wait_for_text(pilot, "no card")
        assert not commands(engine, SetHeadAlias) + commands(engine, PreviewReserve)


async def test_without_a_model_the_keys_set_the_reserve_of_a_cards_next_load() -> None:
    """A reserve that is too large may be why no model could be loaded."""
    kept: dict[str, object] = {}
    plan = PlanSettings(reserve=3_000 * MIB)
    settings = EngineSettings(device=Device.CUDA, plan=plan)
    options = AppOptions(remember=lambda key, value: kept.update({key: value}))
    async with desk(on_card=False, settings=settings, options=options) as (app, engine, pilot, _):
        await pilot.press("f4")
        await wait_for_text(pilot, "Reserve 2,936 MiB from the next load on")
        control = app._control
        assert control.settings.plan is not None
        assert control.settings.plan.reserve == 2_936 * MIB
        assert not control.waits_for_reload
        control.set_reserve(app.chat_screen.state, 590)
        await wait_for_text(pilot, "Reserve 590 MiB from the next load on")
        await wait_until(pilot, lambda: kept == {"vram_reserve_mib": 590})
        assert not commands(engine, PreviewReserve) + commands(engine, SetReserve)


async def test_f3_goes_through_auto_on_and_off() -> None:
    async with desk() as (_, engine, pilot, _):
        for wanted in ("on", "off", "auto"):
            await pilot.press("f3")
            await wait_for_text(pilot, f"◆ Head alias {wanted} from the next prompt on")
        told = commands(engine, SetHeadAlias)
        assert told == [SetHeadAlias(HeadAlias(name)) for name in ("on", "off", "auto")]


async def test_presses_add_up_while_the_engine_is_busy() -> None:
    async with desk() as (app, engine, pilot, _):
        engine.silent = True
        await pilot.press("f3", "f3")
        assert commands(engine, SetHeadAlias)[-1] == SetHeadAlias(HeadAlias.OFF)
        assert "Head alias off" in text_of(app)


async def test_a_change_during_a_prompt_says_next_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as (app, engine, pilot, _):
        monkeypatch.setattr(passing_words, "SHOWN_S", 0.3)
        await app.chat_screen.apply(card.prompt(card_time()))
        engine.silent = True
        await pilot.press("f3")
        await wait_for_text(pilot, "Head alias on from the next prompt on")
        engine.say(card.settings(HeadAlias.AUTO, following=HeadAlias.ON))
        await wait_for_text(pilot, "F3 alias on next prompt")
        assert "Layout · next prompt on   alias · 2,048" in text_of(app)
        engine.say(script.phase(Phase.DECODING), card.settings(HeadAlias.ON))
        await wait_until(pilot, lambda: "next prompt" not in text_of(app), "it has come")
        assert "F3 alias on" in text_of(app)


async def test_a_refused_alias_goes_back_to_what_is() -> None:
    async with desk() as (app, _, pilot, simulated):
        simulated.refuses = True
        await pilot.press("f3")
        await wait_for_text(pilot, "The head is never lent.")
        assert "F3 alias auto" in text_of(app)
        assert "from the next prompt" not in text_of(app)


@pytest.mark.usefixtures("quick")
async def test_f4_says_what_it_will_do_then_does_it_and_says_what_was_reached() -> None:
    kept: dict[str, object] = {}
    options = AppOptions(remember=kept.__setitem__)
    async with desk(options=options) as (app, engine, pilot, _):
        await pilot.press("f4")
        await wait_for_text(pilot, "Reserve 590 → 526 MiB: +40 slots; 526 MiB free · Esc takes it")
        assert not commands(engine, SetReserve)
        await wait_for_text(pilot, "Reached: reserve 526 MiB, 526 MiB free, 2,656 expert slots")
        assert commands(engine, SetReserve) == [SetReserve(526 * MIB)]
        await wait_until(pilot, lambda: kept.get("vram_reserve_mib") == 526, "it was kept")
        app.chat_screen.show_change()


@pytest.mark.usefixtures("quick")
async def test_another_key_ends_what_is_said_of_the_last_one() -> None:
    """For seconds it stands where the keys do: another key would show nothing meanwhile."""
    async with desk() as (app, _, pilot, _):
        await pilot.press("f4")
        await wait_for_text(pilot, "Reached: reserve 526 MiB")
        assert "F3 alias" not in text_of(app)
        await pilot.press("f3")
        await wait_for_text(pilot, "Head alias on from the next prompt on")
        await pilot.press("f4")
        await wait_for_text(pilot, "Reached: reserve 462 MiB")
        await pilot.press("f7")
        await wait_for_text(pilot, "Thinking shown")
        await pilot.press("f6")
        await wait_for_text(pilot, "F7 thinking shown")


@pytest.mark.usefixtures("quick")
async def test_a_change_that_can_be_taken_back_is_not_hidden_by_another_key() -> None:
    async with desk() as (_, _, pilot, _):
        await pilot.press("f4", "f3")
        await wait_for_text(pilot, "Esc takes it back")
        await wait_for_text(pilot, "Head alias on from the next prompt on")


async def test_f7_says_what_it_did_where_nothing_thinks() -> None:
    """With such a model, and where the footer has no room for the key, nothing else changes."""
    async with desk() as (app, engine, pilot, _):
        await pilot.resize_terminal(60, 24)
        await pilot.press("f7")
        await wait_for_text(pilot, "◆ Thinking shown")
        assert "does not think" not in text_of(app)
        (model,) = (event for event in script.loaded() if isinstance(event, ModelLoaded))
        engine.say(replace(model, thinks=False))
        await wait_until(pilot, lambda: not model_thinks(app), "the other model")
        await pilot.press("f7")
        await wait_for_text(pilot, "◆ Thinking hidden; this model does not think")


async def test_the_narrowest_screen_keeps_help_and_the_key_that_stops() -> None:
    """Without F1 a newcomer finds no other key there, not even the one that quits."""
    async with desk() as (app, engine, pilot, _):
        await pilot.resize_terminal(40, 12)
        await wait_for_text(pilot, "F1 help  F4/F5 reserve 590")
        await pilot.press("h", "i", "enter")
        await wait_until(pilot, lambda: engine.requests, "the request")
        await wait_for_text(pilot, "Esc stop")
        assert "F1 help  F4/F5 reserve 590" in text_of(app)


async def test_help_stays_where_what_can_be_taken_back_takes_the_room() -> None:
    async with desk() as (app, engine, pilot, _):
        engine.silent = True
        await pilot.resize_terminal(40, 12)
        await pilot.press("f8", "h", "i", "enter")
        await wait_for_text(pilot, "Esc take back")
        assert "F1 help" in text_of(app)


@pytest.mark.usefixtures("quick")
async def test_further_presses_add_up_to_one_change() -> None:
    async with desk() as (_, engine, pilot, _):
        await pilot.press("f5", "f5", "f5", "f4")
        await wait_for_text(pilot, "Reserve 590 → 718 MiB: −80 slots")
        await wait_for_text(pilot, "Reached: reserve 718 MiB")
        assert commands(engine, SetReserve) == [SetReserve(718 * MIB)]


async def test_esc_takes_an_announced_change_back_and_stops_nothing() -> None:
    async with desk() as (app, engine, pilot, _):
        await pilot.press("h", "i", "enter")
        await wait_until(pilot, lambda: engine.requests, "the request")
        await pilot.press("f4")
        await wait_for_text(pilot, "526")
        await pilot.press("escape")
        await wait_until(pilot, lambda: "526" not in text_of(app), "it was taken back")
        assert not commands(engine, SetReserve)
        assert not engine.cancels
        await pilot.press("escape")
        assert engine.cancels


def test_one_slot_is_not_several() -> None:
    state = replace(MonitorState(), settings=card.settings())
    state = replace(state, preview=ReservePreviewed(590, 654, 8, 7, 654, waits=False))
    assert ": −1 slot; " in preview_words(state, 654)
    one = ReserveApplied(590 * MIB, 590 * MIB, 1, True, "")
    assert applied_words(state, one).endswith(", 1 expert slot")


async def test_the_reserve_never_goes_below_nothing() -> None:
    async with desk() as (_, engine, pilot, _):
        await pilot.press(*["f4"] * 12)
        assert commands(engine, PreviewReserve)[-1] == PreviewReserve(0)


@pytest.mark.usefixtures("quick")
async def test_the_reserve_never_goes_above_what_can_be_kept_free() -> None:
    """A held key stops there and says so; what is kept for the next start would load."""
    kept: dict[str, object] = {}
    async with desk(options=AppOptions(remember=kept.__setitem__)) as (_, engine, pilot, known):
        known.settings = replace(card.settings(), most=700 * MIB)
        engine.say(known.settings)
        await pilot.pause()
        await pilot.press(*["f5"] * 12)
        await wait_for_text(pilot, "Reserve 590 → 700 MiB, more cannot be kept free")
        assert commands(engine, PreviewReserve)[-1] == PreviewReserve(700 * MIB)
        await wait_until(pilot, lambda: kept.get("vram_reserve_mib") == 700, "it was kept")
        await pilot.press("f9", "r", *"1536", "enter")
        await wait_until(pilot, lambda: SetReserve(1536 * MIB) in engine.commands, "it was asked")
        assert kept["vram_reserve_mib"] == 700


async def test_the_alarm_offers_the_key_only_where_it_gives_something_back() -> None:
    async with desk() as (app, engine, pilot, _):
        low = card.sample(card_time(), 287 * MIB, MemoryState.LOW)
        engine.say(replace(card.settings(), most=5_000 * MIB), low)
        await wait_for_text(pilot, "press F5: it gives 64 MiB back")
        engine.say(replace(card.settings(), most=287 * MIB))
        await wait_for_text(pilot, "F5 has nothing left to give back")
        assert "press F5" not in text_of(app)


@pytest.mark.usefixtures("quick")
async def test_a_change_that_has_to_wait_says_so_and_later_what_was_reached() -> None:
    async with desk() as (_, engine, pilot, _):
        engine.silent = True
        await pilot.press("f5")
        why = "it waits until the prompt is read and the slots lent to it are refilled"
        engine.say(ReserveApplied(654 * MIB, 590 * MIB, card.SLOTS, False, why))
        await wait_for_text(pilot, "Reserve 654 MiB: it waits until the prompt is read")
        await pilot.pause(0.4)
        from stratadesk.engine.vram.resizing import Resize

        done = card.memory_phase(VramState.READY, card_time(), books=card.ledger(654 * MIB))
        engine.say(replace(done, resize=Resize(1, 1, 2_575, done=True)))
        await wait_for_text(pilot, "654 MiB free, 2,575 expert slots")


@pytest.mark.usefixtures("quick")
async def test_less_than_asked_names_both_figures_and_the_reason() -> None:
    async with desk() as (_, engine, pilot, _):
        engine.silent = True
        await pilot.press("f5")
        engine.say(ReserveApplied(1536 * MIB, 1210 * MIB, 128, True, "prompt floor"))
        await wait_for_text(pilot, "asked 1,536, got 1,210 MiB: prompt floor")


async def test_what_another_program_took_is_told() -> None:
    async with desk() as (_, engine, pilot, _):
        engine.say(ReserveApplied(590 * MIB, 591 * MIB, 2_245, True, "", "chrome.exe took 412 MiB"))
        await wait_for_text(pilot, "chrome.exe took 412 MiB: now 2,245 expert slots, 591 MiB free")
        assert "F4/F5 reserve" in text_of(pilot.app)


async def test_a_lost_gpu_keeps_the_answer_and_f8_loads_again() -> None:
    async with desk() as (app, engine, pilot, _):
        await pilot.press("h", "i", "enter")
        await wait_until(pilot, lambda: engine.requests, "the request")
        request = engine.requests[-1].request_id
        engine.say(
            *card.prompt(card_time(), request),
            script.said(request, "Half an ans"),
            DeviceLost(card_time(), "The card stopped answering."),
        )
        await wait_for_text(pilot, "GPU LOST")
        assert "Half an ans" in text_of(app)
        await wait_until(pilot, lambda: "tok/s" not in text_of(app), "no speed is left")
        assert "✗ GPU lost" in text_of(app)
        assert not app.chat_screen.chat.busy
        await pilot.press("a", "enter")
        await wait_for_text(pilot, "F8 starts StrataDesk again and keeps the chat.")
        assert len(engine.requests) == 1
        before = len(commands(engine, LoadModel))
        await pilot.press("f8")
        await wait_until(pilot, lambda: len(commands(engine, LoadModel)) > before, "the reload")
        engine.say(*card.loaded(card_time()))
        await wait_until(pilot, lambda: "GPU LOST" not in text_of(app), "it is back")
