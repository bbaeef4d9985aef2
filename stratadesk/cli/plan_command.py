"""`plan`: what would lie where on a card, and how prompts would be read; needs no GPU."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.card_inputs import OF_A_CARD, machine_facts, not_yet, plan_settings
from stratadesk.cli.guide_card import with_card
from stratadesk.cli.inputs import device, engine_settings
from stratadesk.cli.kept_settings import FIELDS, kept_fields, with_kept
from stratadesk.cli.model_argument import model_path
from stratadesk.exit_codes import ExitCode
from stratadesk.logs import start_logging
from stratadesk.models.guide import is_guide
from stratadesk.vram_flags import MACHINE_FLAGS

if TYPE_CHECKING:
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.vram.plan import VramPlan
    from stratadesk.engine.vram.resident import ResidentModel

MADE_UP = "This is the card that the chat makes up for the guide; --vram-mib plans for another."


def plan(arguments: argparse.Namespace) -> int:
    """Print the plan as tables or as JSON; a plan that does not fit is printed all the same.

    Raises:
        MemoryShortageError: the plan does not fit and was not forced, or cannot be.
        UsageError: settings that cannot work with the model.
        GgufError: the file is unsound.
        UnsupportedModelError: this version cannot run the model.
    """
    arguments, _ = with_kept(arguments, ("engine", "memory"))
    model = model_path(arguments.model)
    start_logging()
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.inspection import check_computable

    with GgufFile.open(model) as gguf:
        check_computable(gguf)
        if gets_made_up_card(model, arguments):
            print(MADE_UP, file=sys.stderr, flush=True)
            arguments = on_host(with_card(arguments))
        made = planned(gguf, arguments)
        resident = on_a_real_card(gguf, arguments, made)
    if arguments.json:
        import json

        print(json.dumps(made.as_json(resident), ensure_ascii=False, indent=2))
    else:
        print(made.as_text(resident))
    made.check()
    return ExitCode.OK


def gets_made_up_card(model: Path, arguments: argparse.Namespace) -> bool:
    """Whether the chat would make up a card for `model`, and no flag speaks of another one."""
    if not is_guide(model):
        return False
    of_a_card = OF_A_CARD | {flag.field for flag in MACHINE_FLAGS} | {"device"}
    given = vars(arguments).keys() - kept_fields(arguments)
    return not of_a_card & given and device(arguments) == "host"


def on_host(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with `--device host` among those on the command line."""
    return argparse.Namespace(
        **{**vars(arguments), "device": "host", FIELDS: kept_fields(arguments) - {"device"}}
    )


def planned(gguf: "GgufFile", arguments: argparse.Namespace) -> "VramPlan":
    """Plan for an NVIDIA card or, with `--device host`, as `run` does with the same flags."""
    if _is_for_host(arguments):
        from stratadesk.engine.host_plan import plan_for_host

        return plan_for_host(gguf, engine_settings(arguments))
    from stratadesk.engine.fit import fitting_shape
    from stratadesk.engine.vram.plan import make_plan

    settings = plan_settings(arguments)
    shape = fitting_shape(gguf, mtp=settings.mtp)
    return make_plan(shape, machine_facts(arguments), settings)


def on_a_real_card(
    gguf: "GgufFile", arguments: argparse.Namespace, made: "VramPlan"
) -> "ResidentModel | None":
    """What this version does with the model on the card planned for; None for a simulated one."""
    if _is_for_host(arguments):
        return None
    from stratadesk.engine.card_need import resident_model

    refused = tuple(flag for flag, _ in not_yet(arguments))
    # On a very small card more is assumed to be taken than there is.
    free = max(0, made.machine.free_before)
    return resident_model(gguf, made.settings, free, refused)


def _is_for_host(arguments: argparse.Namespace) -> bool:
    # Where the chat computes is no wish to plan for that: one asks about a card before using it.
    kept = "device" in kept_fields(arguments)
    return not kept and vars(arguments).get("device") == "host"
