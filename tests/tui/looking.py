"""How tests look at the app: the text on screen, and waiting for something to be true."""

import time
from collections.abc import Callable

from textual.app import App
from textual.pilot import Pilot

PATIENCE_S = 60.0


def rows_of(app: App[None]) -> list[str]:
    """Return what stands in each row of the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def text_of(app: App[None]) -> str:
    """Return the screen's text."""
    return "\n".join(rows_of(app))


async def wait_until(pilot: Pilot[None], condition: Callable[[], object], what: str = "") -> None:
    """Let the app run until `condition` holds; fail with the screen if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}\n{text_of(pilot.app)}"
        await pilot.pause(0.02)


async def wait_for_text(pilot: Pilot[None], text: str) -> None:
    """Let the app run until `text` is on screen."""
    await wait_until(pilot, lambda: text in text_of(pilot.app), f"{text!r} on screen")
