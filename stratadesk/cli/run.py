"""`run`: load a model, answer one prompt, stream the answer, leave."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from stratadesk.cli.inputs import engine_settings, read_text, sampling_settings, token_ids
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.model_argument import model_path
from stratadesk.errors import UsageError
from stratadesk.logs import start_logging

if TYPE_CHECKING:
    from stratadesk.engine.commands import Generate

REQUEST_ID = 1


def run(arguments: argparse.Namespace) -> int:
    """Answer the prompt of the command line and return the exit code."""
    arguments, _ = with_kept(arguments, ("engine", "sampling", "memory"))
    request = build_request(arguments)
    settings = engine_settings(arguments)
    model = model_path(arguments.model)
    start_logging()
    warn_of_unkept_kernels()
    from stratadesk.cli.one_answer import OneAnswer
    from stratadesk.cli.views import JsonView, TextView
    from stratadesk.engine.commands import LoadModel
    from stratadesk.engine.loop import Engine

    view = JsonView() if arguments.json else TextView()
    load = LoadModel(model, settings)
    return OneAnswer(Engine(), view).execute(load, request)


def build_request(arguments: argparse.Namespace) -> "Generate":
    """Build the request from the flags; raises `UsageError` for flags that do not go together."""
    from stratadesk.engine.commands import Generate, Message

    written = vars(arguments)
    request = Generate(
        request_id=REQUEST_ID,
        max_tokens=written.get("max_tokens", 0),
        sampling=sampling_settings(arguments),
        ignore_eos=arguments.ignore_eos,
    )
    if "tokens" in written:
        if arguments.raw:
            raise UsageError(
                "--raw goes with -p: --tokens are the whole prompt as they are.",
                "Leave out --raw.",
            )
        return replace(request, tokens=token_ids(arguments.tokens))
    text = read_text(arguments.prompt)
    if arguments.raw:
        return replace(request, raw_prompt=text)
    return replace(request, messages=(Message("user", text),))
