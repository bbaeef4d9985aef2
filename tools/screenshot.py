"""Write the README's screenshots: the real app, and an engine that says what a script has for it.

python tools/screenshot.py [--out assets] [--only reading] [--size 132x40] [--theme strata-light]
"""

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from textual.pilot import Pilot

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from stratadesk.engine.card_events import Provenance, ReservePreviewed  # noqa: E402
from stratadesk.engine.commands import Command, EngineSettings, PreviewReserve  # noqa: E402
from stratadesk.engine.events import Event  # noqa: E402
from stratadesk.engine.forecast import Forecast  # noqa: E402
from stratadesk.tui import moment  # noqa: E402
from stratadesk.tui.options import AppOptions  # noqa: E402
from stratadesk.tui.widgets.attachments import AttachmentBar  # noqa: E402
from stratadesk.tui.widgets.prompt_input import PromptInput  # noqa: E402
from stratadesk.units import MIB  # noqa: E402
from tests.tui import card_scenes  # noqa: E402
from tests.tui import card_script as card  # noqa: E402
from tests.tui import scripted_engine as script  # noqa: E402
from tools.demo_tui import ANSWER, THINKING  # noqa: E402

NOW = 10_000.0
"""The time at which the clock stands, in seconds."""
QUESTION = "Summarise the log below and tell me what failed first."
LOG = "\n".join(f"[{n:5}] cc -O2 -c kernels_{n % 97}.c -o kernels_{n % 97}.o" for n in range(9000))
SCRIPTED = Provenance("SCRIPTED", "made-up figures")
REMOTE_FONT = re.compile(r',\s*url\("https?://[^"]*"\) format\("\w+"\)')

SCENES = {
    "reading": ("head-out", ()),
    "writing": ("decoding", ()),
    "empty": ("zero-wddm", ()),
    "settings": ("ready", ("f9", "k", "f4")),
}
"""For each picture the state of the card, and the keys that are pressed in it."""


def reply(command: Command) -> tuple[Event, ...]:
    """Say what a reserve would do; nothing to anything else."""
    if not isinstance(command, PreviewReserve):
        return ()
    wanted, slots = command.reserve, card.SLOTS + 40
    return (ReservePreviewed(card.RESERVE, wanted, card.SLOTS, slots, wanted, waits=False),)


def foresee(_model: Path, _settings: EngineSettings) -> Forecast:
    """Say what a reload would give."""
    return Forecast(context=32_768, kv_bytes=340 * MIB, slots=2_804)


def after_ready(state: str) -> tuple[Event, ...]:
    """Return what leads from a loaded model to `state`."""
    return card_scenes.SCENES[state](NOW)[len(card_scenes.ready(NOW)) :]


def said(state: str) -> Iterable[Event]:
    """Return what the model says meanwhile."""
    if state == "decoding":
        yield script.thought(1, THINKING)
        yield script.said(1, ANSWER.split("\n")[0])


async def ask(pilot: "Pilot[None]") -> None:
    """Send the question with a long paste."""
    pilot.app.screen.query_one(AttachmentBar).add(LOG)
    pilot.app.screen.query_one(PromptInput).insert(QUESTION)
    await pilot.press("enter")
    await pilot.pause(0.2)


async def shoot(scene: str, size: tuple[int, int], theme: str) -> str:
    """Play a scene and return the screen as SVG."""
    state, keys = SCENES[scene]
    app = script.make_app(script.ScriptedEngine(reply), options=AppOptions(foresee=foresee))
    async with app.run_test(size=size) as pilot:
        app.theme = theme
        app.screen.query_one(PromptInput).cursor_blink = False
        await app.chat_screen.apply((*card_scenes.ready(NOW), SCRIPTED))
        if not keys:
            await ask(pilot)
            await app.chat_screen.apply((*after_ready(state), *said(state)))
        await pilot.press(*keys)
        await pilot.pause(0.5)
        return REMOTE_FONT.sub("", app.export_screenshot(title="StrataDesk, scripted"))


def main() -> None:
    """Write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "assets")
    parser.add_argument("--only", choices=SCENES, help="this one alone")
    parser.add_argument("--size", default="132x40", help="COLUMNSxROWS")
    parser.add_argument("--theme", default="strata-dark")
    arguments = parser.parse_args()
    columns, rows = map(int, arguments.size.split("x"))
    moment.now = lambda: NOW
    arguments.out.mkdir(exist_ok=True)
    for scene in [arguments.only] if arguments.only else SCENES:
        path = arguments.out / f"{scene}.svg"
        path.write_text(asyncio.run(shoot(scene, (columns, rows), arguments.theme)), "utf-8")
        print(path)


if __name__ == "__main__":
    main()
