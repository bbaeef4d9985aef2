"""`run`: load a model, answer one prompt, stream the answer, leave."""

import argparse
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.guide_card import guide_sampling
from stratadesk.cli.inputs import engine_settings, read_text, sampling_settings, token_ids
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.model_argument import model_path
from stratadesk.errors import UsageError
from stratadesk.logs import start_logging

if TYPE_CHECKING:
    from stratadesk.engine.commands import Generate
    from stratadesk.settings_order import Decisions

REQUEST_ID = 1
GUIDE_ANSWERS = "No model is named: the bundled guide answers. It knows this program only."


def run(arguments: argparse.Namespace) -> int:
    """Answer the prompt of the command line and return the exit code."""
    arguments, decisions = with_kept(arguments, ("engine", "sampling", "memory"))
    request = build_request(arguments)
    settings = engine_settings(arguments)
    model = answering_model(decisions)
    request = replace(request, sampling=guide_sampling(arguments, model, request.sampling))
    start_logging()
    warn_of_unkept_kernels()
    from stratadesk.cli.one_answer import OneAnswer
    from stratadesk.cli.views import JsonView, TextView
    from stratadesk.engine.commands import LoadModel
    from stratadesk.engine.loop import Engine

    view = JsonView() if arguments.json else TextView()
    load = LoadModel(model, settings)
    return OneAnswer(Engine(), view).execute(load, request)


def answering_model(decisions: "Decisions") -> Path:
    """Return the model that a flag or the settings name, else the guide, which is said.

    Raises:
        UsageError: none is named and there shall be no guide; or what `model_path` raises.
        GgufError: as `model_path` says, or the guide is missing or damaged.
    """
    from stratadesk.models.guide import VARIABLE, sound_guide

    named = decisions.models
    if named.model is not None:
        return model_path(named.model, named.folders)
    guide = sound_guide()
    if guide is None:
        raise UsageError(
            f"No model is named, and there is no guide: {VARIABLE} is empty.",
            "Give -m and a GGUF file, or a name that stratadesk models lists.",
        )
    # Where standard error is closed or full, the answer still has its place.
    with suppress(OSError):
        print(GUIDE_ANSWERS, file=sys.stderr, flush=True)
    return guide


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
    if not text.strip():
        raise UsageError("The prompt is empty.", "Write something after -p.")
    return replace(request, messages=(Message("user", text),))
