"""A terminal left in mouse mode, or an engine left running, outlives the program.

The app runs in a pseudo-terminal with a scripted engine; what it wrote is read byte by byte.
"""

import signal
import sys
from dataclasses import replace

import pytest

from stratadesk.engine.events import Event, Failure
from tests.tui import scripted_engine as script
from tests.tui.looking import wait_for_text
from tests.tui.scripted_engine import ScriptedEngine, make_app

if sys.platform == "win32":
    pytest.skip("pseudo-terminals need POSIX", allow_module_level=True)

from tests.pseudo_terminal import CTRL_C, CTRL_Q, kitty_flags_left, modes_left_on, terminal

RESTORED = {
    "alternate screen": b"\x1b[?1049l",
    "mouse": b"\x1b[?1000l",
    "mouse movement": b"\x1b[?1003l",
    "bracketed paste": b"\x1b[?2004l",
    "cursor": b"\x1b[?25h",
}


SIGNALS = {"SIGTERM": 143, "SIGHUP": 129}


@pytest.mark.parametrize("way", ["ctrl+q", "ctrl+c twice", *SIGNALS])
def test_the_terminal_is_as_it_was(way: str) -> None:
    with terminal() as screen:
        screen.run("tools/demo_tui.py", "--slow", "0.1")
        screen.read_until(b"READY")
        if way in SIGNALS:
            assert screen.process is not None
            screen.process.send_signal(signal.Signals[way])
        elif way == "ctrl+q":
            screen.type(CTRL_Q)
        else:
            screen.type(CTRL_C)
            screen.read_until(b"again to quit")
            screen.type(CTRL_C)
        code = screen.wait()
        assert code == SIGNALS.get(way, 0)
        for what, reset in RESTORED.items():
            assert reset in screen.written, what
        assert modes_left_on(screen.written) == set()
        assert kitty_flags_left(screen.written) == 0
        assert b"Traceback" not in screen.written
        assert screen.modes() == screen.before


FAILED = Failure(None, "Not enough memory", "x.gguf needs more RAM.", "", 5, loading=True)
REFUSED = Failure(None, "Bad usage", "A setting is ignored.", "", 2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ((), 0),
        ((REFUSED,), 0),
        ((FAILED,), 5),
        ((FAILED, *script.loaded()), 0),
        ((*script.loaded(), FAILED), 0),
        ((replace(FAILED, exit_code=4), FAILED, REFUSED), 5),
    ],
    ids=["nothing", "a setting", "a load", "then another", "after one", "two loads"],
)
async def test_a_chat_that_never_had_a_model_ends_with_the_code_of_what_failed(
    said: tuple[Event, ...], code: int
) -> None:
    engine = ScriptedEngine(lambda _command: ())
    app = make_app(engine)
    async with app.run_test() as pilot:
        engine.say(*said, script.failure(None))
        await wait_for_text(pilot, "Chat template failed")
        await pilot.press("ctrl+q")
    assert app.exit_code == code


async def test_a_failure_of_the_app_prints_no_traceback_and_stops_the_engine(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)

    async def run_and_fail() -> None:
        async with app.run_test() as pilot:
            await wait_for_text(pilot, "READY")
            app.call_later(lambda: 1 // 0)
            await pilot.pause(0.2)

    with pytest.raises(ZeroDivisionError):
        await run_and_fail()
    assert isinstance(app.failed_with, ZeroDivisionError)
    assert engine.stops == 1
    assert "Traceback" not in "".join(capfd.readouterr())
