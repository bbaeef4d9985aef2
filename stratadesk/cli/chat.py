"""`stratadesk` without a command: the chat in the terminal."""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from stratadesk.cli.chat_start import ChatStart, chat_start
from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.handover_file import write_handover
from stratadesk.cli.kept_settings import IGNORED, with_kept
from stratadesk.cli.kernel_cache import unkept_kernels
from stratadesk.cli.output_guard import Printed, output_into
from stratadesk.cli.start_again import start_again
from stratadesk.cli.terminal import print_error
from stratadesk.errors import StrataDeskError, UsageError
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.paths import folders

if TYPE_CHECKING:
    from textual._types import MessageTarget

    from stratadesk.engine.events import Failure
    from stratadesk.engine.loop import Engine
    from stratadesk.settings_file import Problem
    from stratadesk.settings_order import Decisions
    from stratadesk.tui.app import StrataDeskApp
    from stratadesk.tui.ports import Cards

IN_SCRIPTS = 'In scripts use stratadesk run -m MODEL -p "TEXT", or --plain.'


def start_chat(arguments: argparse.Namespace) -> int:
    """Open the chat with the model named, else the guide, else with a choice of those found."""
    arguments, decisions = with_kept(arguments)
    if decisions.interface.plain:
        from stratadesk.cli.plain import chat_in_lines

        return chat_in_lines(arguments, decisions)
    require_terminal()
    start = chat_start(arguments, decisions)
    if start.chat is None:
        check_named(start.model, decisions)
    start_logging()
    from stratadesk.engine.loop import Engine
    from stratadesk.tui.whole_pastes import whole_pastes

    engine = Engine()
    try:
        with output_into(folders().log / "output.log"), whole_pastes():
            app = build_app(engine, decisions, start, GuideCard(arguments))
            printed = Printed()
            app.begin_capture_print(cast("MessageTarget", printed))
            app.run()
    finally:
        engine.stop()
    if app.failed_with is not None:
        raise app.failed_with
    if app.handed_over is not None:
        return start_again(app.handed_over)
    if app.left_without_model is not None:
        # What the chat showed of it went with the screen.
        print_error(app.left_without_model.sentence, app.left_without_model.remedy)
    return app.exit_code


def build_app(
    engine: "Engine",
    decisions: "Decisions",
    start: ChatStart,
    cards: "Cards",
) -> "StrataDeskApp":
    """Build the app around an engine.

    What is wrong in settings files, with the folder of kernels, or else before the start, will
    stand in the chat.
    """
    from stratadesk.engine.forecast import forecast
    from stratadesk.models import find_models
    from stratadesk.settings_file import remember
    from stratadesk.tui.app import StrataDeskApp
    from stratadesk.tui.options import AppOptions

    for trouble in (
        *map(as_failure, start.troubles),
        *problem_cards(decisions.problems),
        *unkept_cards(),
    ):
        engine.events.put(trouble)
    return StrataDeskApp(
        engine=engine,
        model=start.model,
        max_tokens=max_tokens(decisions),
        settings=start.settings,
        sampling=start.sampling,
        discover=partial(find_models, folders=decisions.models.folders),
        options=AppOptions(
            remember=remember,
            foresee=forecast,
            look=start.look,
            fixed=decisions.fixed,
            cards=cards,
            hand_over=write_handover,
            chat=start.chat,
        ),
    )


def check_named(model: Path | None, decisions: "Decisions") -> None:
    """Raise what keeps the model that a flag names from running, before a screen is drawn.

    Reads the header only. Raises `ModelError`.
    """
    from stratadesk.settings_order import Source

    if model is None or decisions.of("models.model").winner.source is not Source.FLAG:
        return
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.inspection import check_supported

    with GgufFile.open(model) as gguf:
        check_supported(gguf)


def max_tokens(decisions: "Decisions") -> int:
    """Return how many tokens an answer may have, 0 meaning until the context is full."""
    limit = decisions.of("max_tokens").winner.value
    return limit if isinstance(limit, int) else 0


def problem_cards(problems: Iterable["Problem"]) -> Iterable["Failure"]:
    """Make what is wrong in settings files into cards that stand in the chat."""
    from stratadesk.engine.events import Failure

    for problem in problems:
        if not problem.unknown:
            yield Failure(None, "A setting is ignored", str(problem), IGNORED, ExitCode.USAGE)


def unkept_cards() -> Iterable["Failure"]:
    """Say in a card that kernels are compiled anew at each start, where that is so."""
    from stratadesk.engine.events import Failure

    unkept = unkept_kernels()
    if unkept is not None:
        yield Failure(None, "Kernels are not kept", *unkept, ExitCode.FAILURE)


def as_failure(error: StrataDeskError) -> "Failure":
    """Make an error into a card that stands in the chat."""
    from stratadesk.engine.events import Failure

    return Failure(None, error.title, error.sentence, error.remedy, error.exit_code)


def require_terminal(program: str = "The chat", instead: str = IN_SCRIPTS) -> None:
    """Raise `UsageError` where a full-screen program could not run."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if not stream.isatty():
            raise UsageError(
                f"{program} needs a terminal, and standard {name} is not one.", instead
            )
