"""`stratadesk` without a command: the chat in the terminal."""

import argparse
import sys
from pathlib import Path

from stratadesk.cli.inputs import engine_settings, sampling_settings
from stratadesk.cli.output_guard import output_into
from stratadesk.errors import UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.paths import folders


def start_chat(arguments: argparse.Namespace) -> int:
    """Open the chat, with the model named or with a choice of those found."""
    require_terminal()
    settings, sampling = engine_settings(arguments), sampling_settings(arguments)
    written = vars(arguments)
    start_logging()
    from stratadesk.engine.loop import Engine
    from stratadesk.models import find_models
    from stratadesk.tui.app import StrataDeskApp

    engine = Engine()
    try:
        with output_into(folders().log / "output.log"):
            app = StrataDeskApp(
                engine=engine,
                model=Path(written["model"]) if "model" in written else None,
                max_tokens=written.get("max_tokens", 0),
                settings=settings,
                sampling=sampling,
                discover=find_models,
            )
            app.run()
    finally:
        engine.stop()
    if app.failed_with is not None:
        raise app.failed_with
    return app.return_code or ExitCode.OK


def require_terminal() -> None:
    """Raise `UsageError` where a full-screen program could not run."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if not stream.isatty():
            raise UsageError(
                f"The chat needs a terminal, and standard {name} is not one.",
                'In scripts use stratadesk run -m MODEL -p "TEXT".',
            )
