"""`stratadesk demo`: the desk with a recording and a script in place of a model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratadesk.exit_codes import ExitCode
from stratadesk.settings_schema import INTERFACE_FLAGS, InterfaceSettings

if TYPE_CHECKING:
    from stratadesk.cli.parser import Parser
    from stratadesk.demo.replay_engine import ReplayEngine
    from stratadesk.tui.demo_app import DemoApp

NAME = "demo"
PURPOSE = "show the desk without a model: a recorded run, then a scripted one"
EXAMPLES = """\
examples:
  stratadesk demo
  stratadesk demo --ascii

First plays what a real engine said while it ran a tiny test model on a simulated card, then a
scripted laptop under Windows whose video memory runs out; the top line says which. Nothing is
computed and no settings are kept. Press Enter, or ask anything, to see the next part.
"""
QUESTIONS = 2
LOOKS = tuple(flag for flag in INTERFACE_FLAGS if flag.field != "plain")


def demo(arguments: argparse.Namespace) -> int:
    """Open the chat on a replay."""
    from stratadesk.cli.chat import require_terminal
    from stratadesk.logs import start_logging

    require_terminal("The demo", "Run it in a terminal, without a pipe.")
    start_logging()
    from stratadesk.cli.output_guard import output_into
    from stratadesk.demo.recording import packaged_recording
    from stratadesk.demo.replay_engine import ReplayEngine
    from stratadesk.paths import folders
    from stratadesk.tui.whole_pastes import whole_pastes

    engine = ReplayEngine(packaged_recording())
    app = build_app(engine, vars(arguments))
    try:
        with output_into(folders().log / "output.log"), whole_pastes():
            app.run()
    finally:
        engine.stop()
    if app.failed_with is not None:
        raise app.failed_with
    return app.return_code or ExitCode.OK


def add_arguments(parser: "Parser") -> None:
    """Let the demo take the flags about how the chat looks."""
    from stratadesk.cli.parser import add_flag

    for flag in LOOKS:
        add_flag(parser, flag)


def build_app(engine: "ReplayEngine", given: dict[str, Any]) -> "DemoApp":
    """Build the app around a replay; `given` are the flags by field."""
    from stratadesk.engine.commands import EngineSettings, SamplingSettings
    from stratadesk.models.found import Discovery
    from stratadesk.tui.demo_app import DemoApp
    from stratadesk.tui.options import AppOptions

    look = InterfaceSettings(**{f.field: given[f.field] for f in LOOKS if f.field in given})
    app = DemoApp(
        engine,
        Path("demo"),
        0,
        EngineSettings(),
        SamplingSettings(),
        lambda: Discovery([], []),
        AppOptions(look=look),
    )
    app.play(lambda: engine.question, QUESTIONS)
    return app
