"""A monitor that shows the right figures in the wrong place is seen only by looking at it.

Each state is a screenshot, read in review, beside what must stand in it in words: all of them at
80x24, 120x36 and 160x50 in dark, and at 120x36 in light and without colour; three in high contrast.
"""

import re
from pathlib import Path

import pytest

from stratadesk.engine.card_events import ReservePreviewed
from stratadesk.engine.commands import Command, Device, EngineSettings, PreviewReserve
from stratadesk.engine.events import Event
from stratadesk.engine.forecast import Forecast
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.options import AppOptions
from stratadesk.tui.widgets.prompt_input import PromptInput
from stratadesk.units import MIB
from tests.tui import svg_goldens
from tests.tui.card_scenes import SCENES
from tests.tui.looking import text_of
from tests.tui.scripted_engine import ScriptedEngine, make_app

USUAL = (120, 36)
SMALL, LARGE = (80, 24), (160, 50)
NO_COLOUR = "no-colour"
REAL = EngineSettings(device=Device.CUDA, plan=PlanSettings())
CONTRASTED = ("head-out", "decoding", "zero-wddm")

WORDS = {
    "ready": ("● READY", "READY ▸ prompt", "in · 333 MiB", "Video memory", "unexplained     9"),
    "head-out": (
        "READING PROMPT",
        "5/8",
        "ready ▸ PROMPT",
        "OUT · 333 MiB",
        "alias · chunk 2,048",
        "2,048 tok/s",
    ),
    "loan": ("loan · chunk 2,048", "2,426", "190", "in · 333 MiB", "4 chunks 4.0 s"),
    "returning": ("RETURNING", "ready ▸ prompt ▸ RETURN", "RETURNING · 333 MiB"),
    "decoding": (
        "WRITING",
        "DECODE",
        "21.9 tok/s",
        "now  84%  answer  83%",
        "link 1.2 GB/s",
        "pinned 7,800 · pageable 2,440",
        "190 lent, 190 refilled",
    ),
    "low": (
        "! LOW",
        "412 MiB free by DXGI",
        "chrome.exe +412 MiB",
        "64 MiB back (−41 expert slots)",
    ),
    "zero-wddm": (
        "!!! EMPTY",
        "No free video memory: 0 MiB free by DXGI, reserve 590 MiB.",
        "Windows is moving parts of it to RAM",
        "chrome.exe +412 MiB",
        "Close it, or press F5: it gives 64 MiB back (−41 expert slots).",
        "This goes away by itself after 5 s above the reserve.",
        "free EMPTY     0",
    ),
    "gpu-lost": ("GPU LOST", "CUDA error 719", "F8 starts StrataDesk again", "F8 start again"),
    "no-gpu": ("● READY", "Memory", "StrataDesk", "KV cache"),
}

ALWAYS = {
    "ready": ("READY", "in · 333 MiB", "Video memory", "F4/F5 reserve 590"),
    "head-out": ("READING", "OUT · 333 MiB", "Video memory", "F4/F5 reserve 590"),
    "loan": ("READING", "in · 333 MiB", "Video memory", "F4/F5 reserve 590"),
    "returning": ("RETURNING", "Video memory", "F4/F5 reserve 590"),
    "decoding": ("WRITING", "tok/s", "Video memory", "F4/F5 reserve 590"),
    "low": ("! LOW", "gives 64 MiB", "Video memory", "F4/F5 reserve 590"),
    "zero-wddm": ("!!! EMPTY", "No free video memory: 0 MiB", "press F5"),
    "gpu-lost": ("GPU LOST", "F8 starts StrataDesk", "F8 start again"),
    "no-gpu": ("READY", "Memory", "StrataDesk"),
}
"""What each state says at every size, small ones included."""


def foretell(command: Command) -> tuple[Event, ...]:
    """Say what a reserve would do."""
    if not isinstance(command, PreviewReserve):
        return ()
    told = ReservePreviewed(590 * MIB, command.reserve, 2_616, 2_656, command.reserve, waits=False)
    return (told,)


def foresee(_model: Path, _settings: EngineSettings) -> Forecast:
    """Say what a reload would give."""
    return Forecast(32_768, 340 * MIB, 2_816)


async def look(
    scene: str,
    size: tuple[int, int],
    now: float,
    theme: str,
    *keys: str,
    settings: EngineSettings | None = None,
) -> tuple[StrataDeskApp, str, str]:
    """Play a scene; return the app, the screen's text, and its picture."""
    options = AppOptions(foresee=foresee)
    app = make_app(ScriptedEngine(foretell), settings=settings, options=options)
    async with app.run_test(size=size) as pilot:
        app.theme = theme
        app.screen.query_one(PromptInput).cursor_blink = False
        await app.chat_screen.apply(SCENES[scene](now))
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.pause(0.2 if keys else 0.0)
        return app, text_of(app), app.export_screenshot(title=f"StrataDesk {scene}")


def check(request: pytest.FixtureRequest, name: str, picture: str) -> None:
    svg_goldens.compare(name, picture, update=request.config.getoption("--update-goldens"))


@pytest.mark.parametrize("scene", SCENES)
async def test_each_state(scene: str, still: float, request: pytest.FixtureRequest) -> None:
    _, text, picture = await look(scene, USUAL, still, "strata-dark")
    for words in WORDS[scene]:
        assert words in text, f"{words!r} is not on screen:\n{text}"
    check(request, f"{scene}-120x36", picture)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "160x50"])
@pytest.mark.parametrize("scene", SCENES)
async def test_each_size(
    scene: str, size: tuple[int, int], still: float, request: pytest.FixtureRequest
) -> None:
    _, text, picture = await look(scene, size, still, "strata-dark")
    for words in ALWAYS[scene] if size == SMALL else WORDS[scene]:
        assert squeezed(words) in squeezed(text), f"{words!r} is not on screen:\n{text}"
    check(request, f"{scene}-{size[0]}x{size[1]}", picture)


@pytest.mark.parametrize(
    ("scene", "theme"),
    [
        *((scene, theme) for scene in SCENES for theme in ("strata-light", NO_COLOUR)),
        *((scene, "strata-contrast") for scene in CONTRASTED),
    ],
)
async def test_each_theme(
    scene: str,
    theme: str,
    still: float,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, text, picture = await look(scene, USUAL, still, themed(theme, monkeypatch))
    for words in WORDS[scene]:
        assert words in text
    check(request, f"{scene}-{theme}", picture)


def squeezed(text: str) -> str:
    """One space for each run of them: a wider pane has wider gaps."""
    return re.sub(" +", " ", text)


def themed(theme: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The theme to look at; without colour it is the dark one."""
    if theme != NO_COLOUR:
        return theme
    monkeypatch.setenv("NO_COLOR", "1")
    return "strata-dark"


@pytest.mark.parametrize("size", [SMALL, USUAL, LARGE], ids=["80x24", "120x36", "160x50"])
async def test_a_change_of_the_reserve_is_announced(
    size: tuple[int, int], still: float, request: pytest.FixtureRequest
) -> None:
    _, text, picture = await look("ready", size, still, "strata-dark", "f9", "k", "f4")
    preview_is_told(text)
    check(request, f"settings-preview-{size[0]}x{size[1]}", picture)


@pytest.mark.parametrize("theme", ["strata-light", NO_COLOUR])
async def test_the_announcement_in_each_theme(
    theme: str, still: float, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = themed(theme, monkeypatch)
    _, text, picture = await look("ready", USUAL, still, used, "f9", "k", "f4")
    preview_is_told(text)
    check(request, f"settings-preview-{theme}", picture)


@pytest.mark.parametrize("size", [SMALL, USUAL], ids=["80x24", "120x36"])
async def test_what_a_real_card_leaves_no_choice_of_is_no_row_with_a_key(
    size: tuple[int, int], still: float, request: pytest.FixtureRequest
) -> None:
    keys = ("f9", "k", "d")
    _, text, picture = await look("ready", size, still, "strata-dark", *keys, settings=REAL)
    assert re.search(r"D +device +\* host", text)
    assert "F3" not in text
    check(request, f"settings-leave-card-{size[0]}x{size[1]}", picture)
    keys = ("f9", "k")
    _, text, picture = await look("ready", size, still, "strata-dark", *keys, settings=REAL)
    for row in ("head alias +auto +unsupported", "chunk +8 +fixed", "expert slots +all +resident"):
        assert re.search(f"– +{row}", text), text
    check(request, f"settings-real-card-{size[0]}x{size[1]}", picture)


def preview_is_told(text: str) -> None:
    assert "Reserve 590 → 526 MiB" in text
    assert "+40 slots; 526 MiB free" in text
    assert "Esc takes it back" in text
    assert "expert slots 2,616 → 2,816" in text
    assert "* q8_0" in text
