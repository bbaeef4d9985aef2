"""`logits`, `tokenize` and `inspect`: questions to a model file that need no chat."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.card_inputs import card_for
from stratadesk.cli.inputs import chosen, device, drafts, read_text, token_ids, token_ids_from
from stratadesk.cli.kernel_cache import warn_of_unkept_kernels
from stratadesk.cli.model_argument import model_path
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.result_file import check_place
from stratadesk.settings import LOGITS_FLAGS

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings


def logits(arguments: argparse.Namespace) -> int:
    """Write the logits of every position of a token sequence to an .npz file.

    With --mtp those of the draft head too.
    """
    if "tokens" in arguments:
        tokens = token_ids(arguments.tokens)
    else:
        tokens = token_ids_from(Path(arguments.tokens_file))
    output = Path(arguments.output)
    check_place(output)
    settings = logits_settings(arguments, len(tokens))
    model = model_path(arguments.model)
    start_logging()
    warn_of_unkept_kernels()
    from stratadesk.engine.logits import write_logits

    write_logits(model, tokens, output, settings)
    return ExitCode.OK


def logits_settings(arguments: argparse.Namespace, tokens: int) -> "EngineSettings":
    """Build the settings for a sequence of so many tokens: its length is the context's."""
    from stratadesk.engine.commands import EngineSettings, KvFormat

    given = chosen(arguments, LOGITS_FLAGS)
    plan, machine = card_for(arguments, device(arguments))
    return EngineSettings(
        device=device(arguments),
        max_context=tokens,
        kv_format=KvFormat(given["kv_format"]),
        chunk=given["chunk"] or tokens,
        mtp=drafts(arguments),
        plan=plan,
        machine=machine,
    )


def tokenize(arguments: argparse.Namespace) -> int:
    """Print the token ids of a text as a JSON list."""
    model = model_path(arguments.model)
    text = read_text(arguments.text)
    start_logging()
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.tokenizer import Tokenizer

    with GgufFile.open(model) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf)
        ids = tokenizer.encode(text, parse_special=not arguments.no_parse_special)
    print(ids)
    return ExitCode.OK


def inspect(arguments: argparse.Namespace) -> int:
    """Print what a model file holds, as a table or as JSON."""
    import json

    model = model_path(arguments.model)
    start_logging()
    from stratadesk.engine.inspection import inspect_model

    inspection = inspect_model(model)
    if arguments.json:
        print(json.dumps(inspection.as_json(), ensure_ascii=False, indent=2))
    else:
        print(inspection.as_table())
    return ExitCode.OK
