"""`plan`: what would lie where on a card, and how prompts would be read; needs no GPU."""

import argparse

from stratadesk.cli.card_inputs import machine_facts, plan_settings
from stratadesk.cli.kept_settings import with_kept
from stratadesk.cli.model_argument import model_path
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging


def plan(arguments: argparse.Namespace) -> int:
    """Print the plan as tables or as JSON; a plan that does not fit is printed all the same.

    Raises:
        MemoryShortageError: the plan does not fit and was not forced, or cannot be.
        UsageError: settings that cannot work with the model.
        GgufError: the file is unsound.
    """
    arguments, _ = with_kept(arguments, ("engine", "memory"))
    machine, settings = machine_facts(arguments), plan_settings(arguments)
    model = model_path(arguments.model)
    start_logging()
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.vram.plan import make_plan
    from stratadesk.engine.vram.shape_reader import read_shape

    with GgufFile.open(model) as gguf:
        made = make_plan(read_shape(gguf), machine, settings)
    if arguments.json:
        import json

        print(json.dumps(made.as_json(), ensure_ascii=False, indent=2))
    else:
        print(made.as_text())
    made.check()
    return ExitCode.OK
