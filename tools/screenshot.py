"""Write screenshots of the app, on a scripted engine, as SVG (and PNG where a converter is).

python tools/screenshot.py [--out docs] [--scene chat] [--size 160x50] [--theme strata-light]
"""

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stratadesk.engine.commands import Command, LoadModel  # noqa: E402
from stratadesk.engine.events import Event, FinishReason, Phase  # noqa: E402
from stratadesk.tui.app import StrataDeskApp  # noqa: E402
from stratadesk.tui.widgets.attachments import AttachmentBar  # noqa: E402
from stratadesk.tui.widgets.prompt_input import PromptInput  # noqa: E402
from tests.tui import scripted_engine as script  # noqa: E402
from tools.demo_tui import ANSWER, THINKING, Search  # noqa: E402

QUESTION = "Summarise the log below and tell me what failed first."
LOG = "\n".join(f"[{n:5}] cc -O2 -c kernels_{n % 97}.c -o kernels_{n % 97}.o" for n in range(9000))

REMOTE_FONT = re.compile(r',\s*url\("https?://[^"]*"\) format\("\w+"\)')

Scene = Callable[[script.ScriptedEngine, "Pilot[None]"], Awaitable[None]]


async def settle(pilot: "Pilot[None]") -> None:
    """Let everything be drawn."""
    for _ in range(3):
        await pilot.pause(0.1)


async def ask(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> int:
    """Type a question with a long paste and send it; return the request's id."""
    screen = pilot.app.screen
    screen.query_one(AttachmentBar).add(LOG)
    screen.query_one(PromptInput).insert(QUESTION)
    await pilot.press("enter")
    await settle(pilot)
    return engine.requests[-1].request_id


async def ready(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """A model is loaded and nothing was asked yet."""
    await settle(pilot)


async def loading(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """Kernels are being compiled."""
    engine.say(*script.loading(3, 12))
    await settle(pilot)


async def reading(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """A long prompt is being read."""
    request = await ask(engine, pilot)
    engine.say(
        script.phase(Phase.PROMPT),
        script.started(request, prompt=15_934, reused=412),
        script.reading(request, 8_192, 15_934, reused=412),
    )
    await settle(pilot)


async def chat(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """An answer is being written."""
    await reading(engine, pilot)
    request = engine.requests[-1].request_id
    engine.say(
        script.reading(request, 15_522, 15_934, reused=412),
        script.phase(Phase.DECODING),
        script.thought(request, THINKING),
        script.writing(request, 58, thinking=58, context=15_992),
        script.said(request, ANSWER),
        script.writing(request, 291, thinking=58, context=16_225),
    )
    await settle(pilot)


async def answered(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """The answer is complete and its thinking unfolded."""
    await chat(engine, pilot)
    request = engine.requests[-1].request_id
    engine.say(
        script.finished(request, ANSWER, tokens=291, prompt=15_934, reused=412, context=16_225),
        script.phase(Phase.READY),
    )
    await pilot.press("f7")
    await settle(pilot)


async def trouble(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """One answer was stopped, the next one failed."""
    request = await ask(engine, pilot)
    engine.say(
        script.started(request, prompt=15_934, note="message 2 was edited"),
        script.said(request, "The first failure is"),
        script.finished(request, "The first failure is", reason=FinishReason.CANCELLED),
    )
    await settle(pilot)
    request = await ask(engine, pilot)
    engine.say(script.failure(request, offers_chatml=True), script.phase(Phase.READY))
    await settle(pilot)


async def picker(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """The models found on this machine."""
    await pilot.press("f2")
    await settle(pilot)


async def help_keys(engine: script.ScriptedEngine, pilot: "Pilot[None]") -> None:
    """The list of keys."""
    await pilot.press("f1")
    await settle(pilot)


SCENES: dict[str, Scene] = {
    "ready": ready,
    "loading": loading,
    "reading": reading,
    "chat": chat,
    "answered": answered,
    "trouble": trouble,
    "picker": picker,
    "help": help_keys,
}


def reply(command: Command) -> tuple[Event, ...]:
    """Load any model at once."""
    is_load = isinstance(command, LoadModel)
    return script.loaded(name="Qwen3.6 35B A3B IQ4_XS") if is_load else ()


async def shoot(scene: str, columns: int, rows: int, theme: str) -> str:
    """Play a scene and return the screen as SVG."""
    engine = script.ScriptedEngine(reply)
    app: StrataDeskApp = script.make_app(engine, found=Search())
    async with app.run_test(size=(columns, rows)) as pilot:
        await settle(pilot)
        app.theme = theme
        await SCENES[scene](engine, pilot)
        return REMOTE_FONT.sub("", app.export_screenshot(title="StrataDesk"))


def to_png(svg: Path) -> Path | None:
    """Convert a screenshot with a headless Chromium; None where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return None
    png = svg.with_suffix(".png")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text("utf-8"))
    width, height = (round(float(side)) for side in box.groups()) if box else (1600, 1000)
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
            f"--screenshot={png}",
            svg.as_uri(),
        ],
        check=True,
        capture_output=True,
    )
    return png


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    parser.add_argument("--scene", choices=SCENES, default="chat")
    parser.add_argument("--size", default="132x42", help="COLUMNSxROWS")
    parser.add_argument("--theme", default="strata-dark")
    parser.add_argument("--name", default="screenshot")
    parser.add_argument("--png", action="store_true", help="convert with Chromium, if it is there")
    arguments = parser.parse_args()
    columns, rows = map(int, arguments.size.split("x"))
    svg = arguments.out / f"{arguments.name}.svg"
    svg.write_text(asyncio.run(shoot(arguments.scene, columns, rows, arguments.theme)), "utf-8")
    print(svg, to_png(svg) if arguments.png else "")


if __name__ == "__main__":
    main()
