"""A monitor that breaks in a small window, in sixteen colours or without box characters.

Every state is shown at sizes from 20x5 to 250x80; nothing may be wider than its place, and the
facts that matter must be there in some form.
"""

import pytest
from rich.color import ColorSystem
from rich.style import Style

from stratadesk.engine.events import Event, VramSample
from stratadesk.engine.vram.readings import Growth
from stratadesk.engine.vram.states import MemoryState
from stratadesk.settings_schema import InterfaceSettings
from stratadesk.tui import ascii_filter
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.options import AppOptions
from stratadesk.tui.widgets.monitor_pane import MonitorPane
from stratadesk.units import MIB
from tests.tui import card_script as card
from tests.tui.card_scenes import SCENES
from tests.tui.looking import rows_of, text_of, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app

SIZES = [(20, 5), (60, 20), (71, 15), (72, 16), (80, 24), (110, 30), (149, 40), (250, 80)]
HOSTILE = "evil\x1b[31m\u202e程序🎈.exe"


def app_for(*, ascii_only: bool = False) -> StrataDeskApp:
    look = InterfaceSettings(ascii=ascii_only)
    return make_app(ScriptedEngine(lambda _command: ()), options=AppOptions(look=look))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_state_at_every_size(size: tuple[int, int], still: float) -> None:
    app = app_for()
    async with app.run_test(size=size) as pilot:
        for scene, events in SCENES.items():
            await app.chat_screen.apply(events(still))
            await pilot.pause()
            rows = rows_of(app)
            assert len(rows) == size[1], scene
            text = "\n".join(rows)
            if size[0] >= 60 and scene != "no-gpu":
                assert "free" in text or "GPU LOST" in text, f"{scene}:\n{text}"
            if scene == "zero-wddm" and size[0] >= 60:
                assert "EMPTY" in text
            if scene == "gpu-lost":
                assert "GPU LOST"[: size[0] - 4] in text


async def test_the_folded_line_has_the_facts_in_order(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(70, 20)) as pilot:
        await app.chat_screen.apply(SCENES["loan"](still))
        await pilot.pause()
        assert "▶ READING  5/8 · lent 190 · free 592 MiB" in text_of(app)
        await app.chat_screen.apply(SCENES["head-out"](still))
        await pilot.pause()
        assert "▶ READING  5/8 · head OUT · free 592 MiB" in text_of(app)
        await app.chat_screen.apply(SCENES["low"](still))
        await pilot.pause()
        assert "LOW free 412 MiB" in text_of(app)


async def test_parts_give_way_whole_and_in_order(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 50)) as pilot:
        await app.chat_screen.apply(SCENES["loan"](still))
        seen = []
        for rows in range(50, 15, -1):
            await pilot.resize_terminal(120, rows)
            await pilot.pause()
            pane = app.screen.query_one(MonitorPane)
            shown = [part for part in pane.parts if part.section.display]
            bottom = max(part.section.region.bottom for part in shown)
            assert bottom <= pane.region.bottom, f"{rows} rows"
            seen.append(len(shown))
        assert seen[0] > seen[-1] > 2


async def test_many_resizes_while_an_alarm_comes_and_goes(still: float) -> None:
    app = app_for()
    scenes = [SCENES["zero-wddm"](still), SCENES["decoding"](still)]
    async with app.run_test(size=(120, 36)) as pilot:
        for step in range(30):
            await pilot.resize_terminal(20 + (step * 37) % 180, 5 + (step * 13) % 60)
            await app.chat_screen.apply(scenes[step % 2])
        await pilot.resize_terminal(120, 36)
        await app.chat_screen.apply(scenes[1])
        await wait_until(pilot, lambda: "WRITING" in text_of(app), "the last state")
        assert "EMPTY" not in text_of(app)


async def test_the_alarm_stands_above_a_monitor_that_is_off(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("f6", "f6")
        await app.chat_screen.apply(SCENES["zero-wddm"](still))
        await pilot.pause()
        assert "!!! EMPTY" in rows_of(app)[2]
        assert "Video memory" not in text_of(app)


async def test_the_alarm_leaves_when_the_state_machine_says_so(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 36)) as pilot:
        await app.chat_screen.apply(SCENES["zero-wddm"](still))
        left = card.sample(still, card.RESERVE, MemoryState.ZERO, kept_for=2.0)
        await app.chat_screen.apply((left,))
        await pilot.pause()
        assert "WAS EMPTY" in text_of(app)
        assert "goes away by itself in 3 s" in text_of(app)
        await app.chat_screen.apply((card.sample(still, card.RESERVE),))
        await pilot.pause()
        assert "EMPTY" not in text_of(app)


async def test_a_program_with_a_hostile_name_moves_nothing(still: float) -> None:
    app = app_for()
    grew = Growth(HOSTILE, 1, 412 * MIB)
    sample = card.sample(still, 0, MemoryState.ZERO, grew=grew)
    async with app.run_test(size=(120, 36)) as pilot:
        await app.chat_screen.apply((*card.loaded(still), sample))
        await pilot.pause()
        text = text_of(app)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "程序" in text


async def test_a_lost_reading_is_not_shown_as_nothing(still: float) -> None:
    app = app_for()
    lost = card.sample(still, None, MemoryState.LOST, age=7.0)
    assert isinstance(lost, VramSample)
    async with app.run_test(size=(120, 36)) as pilot:
        await app.chat_screen.apply((*card.loaded(still), VramSample(lost.status, card.ledger())))
        await pilot.pause()
        text = text_of(app)
        assert "NO READING" in text
        assert "has not been known for 7 s" in text
        assert "CUDA: the card is gone" in text
        assert "CUDA N/A" in text


@pytest.mark.parametrize("scene", SCENES)
async def test_ascii_means_ascii(scene: str, still: float) -> None:
    app = app_for(ascii_only=True)
    async with app.run_test(size=(120, 36)) as pilot:
        await app.chat_screen.apply(SCENES[scene](still))
        await pilot.press("f9")
        await pilot.pause()
        settings = text_of(app)
        await pilot.press("escape")
        await pilot.pause()
        for text in (settings, text_of(app)):
            assert text.isascii(), {char for char in text if not char.isascii()}


def test_ascii_keeps_the_owners_apart() -> None:
    from stratadesk.tui.card_shares import FREE, OWNERS, RESERVE, UNEXPLAINED

    glyphs = [owner.glyph for owner in (*OWNERS, UNEXPLAINED, FREE, RESERVE)]
    assert len(set(glyphs)) == len(glyphs)
    plain = [ascii_filter.plain(glyph) for glyph in glyphs]
    assert len(set(plain)) == len(plain)
    filled, rest = ascii_filter.plain("━"), ascii_filter.plain("─")
    assert filled != rest


def test_ascii_leaves_letters_alone() -> None:
    assert ascii_filter.plain("naïve 你好 Ж") == "naïve 你好 Ж"


@pytest.mark.parametrize("theme", ["strata-dark", "strata-light", "strata-contrast"])
async def test_in_sixteen_colours_nothing_vanishes(theme: str, still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 36)) as pilot:
        app.theme = theme
        for events in (SCENES["head-out"], SCENES["zero-wddm"], SCENES["decoding"]):
            await app.chat_screen.apply(events(still))
            await pilot.pause()
            lost = {text for text, style in pieces(app) if vanishes(style)}
            assert lost <= {"│"}, lost


def pieces(app: StrataDeskApp) -> list[tuple[str, Style]]:
    return [
        (segment.text.strip(), segment.style)
        for strip in app.screen._compositor.render_strips()
        for segment in strip
        if segment.text.strip() and segment.style is not None
    ]


def vanishes(style: Style) -> bool:
    if style.color is None or style.bgcolor is None:
        return False
    front, back = (c.downgrade(ColorSystem.STANDARD) for c in (style.color, style.bgcolor))
    return front.number == back.number


def test_scenes_are_made_of_engine_events(still: float) -> None:
    for events in SCENES.values():
        assert all(isinstance(event, Event) for event in events(still))


@pytest.mark.parametrize("scene", ["low", "zero-wddm"])
async def test_who_has_the_memory_is_told_beside_an_alarm(scene: str, still: float) -> None:
    app = app_for()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.chat_screen.apply(SCENES[scene](still))
        await pilot.pause()
        text = text_of(app)
        assert "goes away by itself after 5 s above" in " ".join(text.split())
        for owner in ("weights", "experts", "programs", "unexplained"):
            assert owner in text, owner
        assert "…" not in text


async def test_nothing_is_said_of_a_card_that_is_lost(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(120, 36)) as pilot:
        await app.chat_screen.apply(SCENES["gpu-lost"](still))
        await pilot.pause()
        text = text_of(app)
        assert "F8 start again" in text
        for stale in ("Video memory", "Free, 60 s", "Slot hits", "F4/F5"):
            assert stale not in text, stale


async def test_settings_fit_a_small_terminal_whole(still: float) -> None:
    app = app_for()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.chat_screen.apply(SCENES["ready"](still))
        await pilot.press("f9", "k", "f4")
        await pilot.pause()
        text = text_of(app)
        assert "Esc goes back" in text
        assert "types it" in text
        assert "more of them cost slots" in text
