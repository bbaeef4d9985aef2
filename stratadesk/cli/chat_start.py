"""What a chat starts with: what the command line says, or what was handed over to it."""

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.cli.handover_file import forget_stale, take_handover
from stratadesk.cli.inputs import engine_settings, sampling_settings
from stratadesk.cli.model_argument import model_path
from stratadesk.errors import StrataDeskError
from stratadesk.models.guide import GUIDE, sound_guide

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings, SamplingSettings
    from stratadesk.settings_order import Decisions
    from stratadesk.settings_schema import InterfaceSettings
    from stratadesk.tui.handover import ChatRecord, Handover


@dataclass(frozen=True, slots=True)
class ChatStart:
    """Without `model` one is to be chosen. `chat` goes on; `troubles` are to be told in it."""

    model: Path | None
    settings: "EngineSettings"
    sampling: "SamplingSettings"
    look: "InterfaceSettings"
    chat: "ChatRecord | None" = None
    troubles: tuple[StrataDeskError, ...] = ()


def chat_start(arguments: argparse.Namespace, decisions: "Decisions") -> ChatStart:
    """Return what was handed over to this program, else what the command line and settings say.

    Raises what `model_path` and `engine_settings` raise for flags.
    """
    troubles: tuple[StrataDeskError, ...] = ()
    try:
        handed = take_handover()
    except StrataDeskError as error:
        handed, troubles = None, (error,)
    forget_stale()
    if handed is not None:
        return _continued(handed, decisions.interface)
    settings, sampling = engine_settings(arguments), sampling_settings(arguments)
    model, trouble = start_model(decisions)
    troubles += () if trouble is None else (trouble,)
    return ChatStart(model, settings, sampling, decisions.interface, troubles=troubles)


def _continued(handed: "Handover", look: "InterfaceSettings") -> ChatStart:
    """Go on with what was chosen last, whatever the command line said of it at the first start."""
    return ChatStart(
        None if handed.model is None else Path(handed.model),
        handed.settings,
        handed.sampling,
        replace(handed.look, ascii=look.ascii, plain=look.plain),
        handed.chat,
    )


def start_model(decisions: "Decisions") -> tuple[Path | None, StrataDeskError | None]:
    """Return the model to start with, None for one to be chosen, and what is wrong with the guide.

    A guide that is missing or damaged keeps nobody from choosing another model.

    Raises what `model_path` raises for a flag.
    """
    from stratadesk.settings_order import Source

    try:
        return chosen_model(decisions), None
    except StrataDeskError as error:
        if decisions.of("models.model").winner.source is Source.FLAG:
            raise
        return None, error


def chosen_model(decisions: "Decisions") -> Path | None:
    """Return the model that a flag or the settings name, else the guide.

    None when there shall be no guide either: the user is to choose. A model that only the settings
    name and that is gone is left to the chat, which says so and offers others.

    Raises what `model_path` raises for a flag and for the guide.
    """
    from stratadesk.settings_order import Source

    name, folders = decisions.models.model, decisions.models.folders
    if name is None:
        return sound_guide()
    try:
        return model_path(name, folders)
    except StrataDeskError:
        if name == GUIDE or decisions.of("models.model").winner.source is Source.FLAG:
            raise
        return Path(os.path.expanduser(name))
