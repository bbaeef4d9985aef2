"""`--plain`: the chat line by line, for pipes, screen readers and simple terminals."""

import argparse
import io
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.chat import max_tokens
from stratadesk.cli.chat_start import ChatStart, chat_start
from stratadesk.cli.guide_card import GuideCard
from stratadesk.cli.handover_file import write_handover
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.plain_page import PlainPage
from stratadesk.cli.start_again import start_again
from stratadesk.cli.terminal import print_error
from stratadesk.engine.commands import LoadModel
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging

if TYPE_CHECKING:
    from stratadesk.settings_order import Decisions
    from stratadesk.tui.handover import ChatRecord


def chat_in_lines(arguments: argparse.Namespace, decisions: "Decisions") -> int:
    """Chat line by line with the model named, else the guide, else one chosen by its number."""
    start = chat_start(arguments, decisions)
    start_logging()
    from stratadesk.cli.plain_chat import PlainChat
    from stratadesk.engine.loop import Engine

    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():
        lines = WholeLines(sys.stdin.fileno(), closefd=False)
        sys.stdin = io.TextIOWrapper(lines, encoding="utf-8", errors="replace")
    with suppress(ImportError):
        import readline  # noqa: F401  (from here on `input` lets the line be edited)
    page = PlainPage(sys.stdout)
    warn_of_unkept_kernels()
    for trouble in start.troubles:
        print_error(trouble.sentence, trouble.remedy)
    model = start.model or choose_model(page, decisions)
    if model is None:
        return ExitCode.OK
    cards = GuideCard(arguments)
    load = LoadModel(model, cards.fit(model, start.settings))
    chat = PlainChat(
        Engine(),
        page,
        cards.sampling(model, start.sampling),
        max_tokens(decisions),
        remembered=cards.remembered(model),
        thinking_shown=start.look.thinking == "shown",
        before=start.chat,
        hand_over=partial(hand_over, start, load),
    )
    code = chat.run(load)
    return code if chat.handed_over is None else start_again(chat.handed_over)


def hand_over(start: ChatStart, load: LoadModel, chat: "ChatRecord") -> Path:
    """Keep the chat and what it was started with; return the file.

    Raises:
        StrataDeskError: it cannot be written.
    """
    from stratadesk.tui.handover import Handover

    return write_handover(Handover(str(load.path), load.settings, start.sampling, start.look, chat))


class WholeLines(io.FileIO):
    """A pipe of which no more is read than the line that is asked for.

    What follows is for whoever reads the pipe next: the program that starts in this one's place.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next line, or what there is of the last one, whatever `size` is."""
        line = bytearray()
        while not line.endswith(b"\n") and (byte := super().read(1)):
            line += byte
        return bytes(line)


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
