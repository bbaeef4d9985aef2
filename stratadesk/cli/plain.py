"""`--plain`: the chat line by line, for pipes, screen readers and simple terminals."""

import argparse
import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.chat import max_tokens, start_model
from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.inputs import engine_settings, sampling_settings
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.plain_page import PlainPage
from stratadesk.cli.terminal import print_error
from stratadesk.engine.commands import LoadModel
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging

if TYPE_CHECKING:
    from stratadesk.settings_order import Decisions


def chat_in_lines(arguments: argparse.Namespace, decisions: "Decisions") -> int:
    """Chat line by line with the model named, else the guide, else one chosen by its number."""
    settings, sampling = engine_settings(arguments), sampling_settings(arguments)
    start_logging()
    from stratadesk.cli.plain_chat import PlainChat
    from stratadesk.engine.loop import Engine

    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    with suppress(ImportError):
        import readline  # noqa: F401  (from here on `input` lets the line be edited)
    page = PlainPage(sys.stdout)
    warn_of_unkept_kernels()
    model, trouble = start_model(decisions)
    if trouble is not None:
        print_error(trouble.sentence, trouble.remedy)
    model = model or choose_model(page, decisions)
    if model is None:
        return ExitCode.OK
    cards = GuideCard(arguments)
    chat = PlainChat(
        Engine(),
        page,
        cards.sampling(model, sampling),
        max_tokens(decisions),
        thinking_shown=decisions.interface.thinking == "shown",
    )
    return chat.run(LoadModel(model, cards.fit(model, settings)))


def choose_model(page: PlainPage, decisions: "Decisions") -> Path | None:
    """List the models on this machine and ask for a number; None when the user leaves."""
    from stratadesk.models import find_models

    found = find_models(folders=decisions.models.folders).models
    usable = [model for model in found if model.supported]
    for number, model in enumerate(usable, 1):
        page.line(f"{number}. {model.name} ({model.architecture}, {model.store})")
    if not usable:
        page.line("No model was found; name one with -m, or a folder with STRATADESK_MODELS.")
        return None
    while True:
        try:
            answer = page.ask("Number of the model: ").strip()
        except (EOFError, KeyboardInterrupt):
            return None
        if answer.isdecimal() and 1 <= int(answer) <= len(usable):
            return usable[int(answer) - 1].path
        page.line(f"Write a number from 1 to {len(usable)}.")
