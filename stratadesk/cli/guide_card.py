"""What the guide gets that other models do not: a small card, and answers without chance.

The chat makes up the card, to show every phase without a GPU.

Beside its reserve the card has room for half of the experts, so that there are hits and misses;
lowering the reserve makes room for more. Each prompt is read over the head's bytes. No other
program holds any of the card.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratadesk.cli.card_inputs import UNSHARED, plan_settings
from stratadesk.cli.inputs import engine_settings
from stratadesk.cli.kept_settings import FIELDS, kept_fields
from stratadesk.models.guide import is_guide
from stratadesk.settings import ENGINE_FLAGS
from stratadesk.vram_flags import VRAM_FLAGS

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings, SamplingSettings
    from stratadesk.engine.vram.plan_settings import PlanSettings

CARD_MIB = 24
CHOICES: Final = {"vram_reserve_mib": 8, "prefill_head_alias": "on", "short_read": 0}
"""What no flag says: every prompt, however short, is read over the head, to be seen. Blocks of
so small a card are of 64 KiB (`card_inputs.SMALL_BLOCK`)."""

GUIDE_REMEMBERS = 2
"""Exchanges that the guide is told again with a question: it was trained on short chats, and with
more of them it takes one subject for another."""

OF_THE_MODEL = frozenset(
    {flag.field for flag in (*ENGINE_FLAGS, *VRAM_FLAGS)} - {"device", "kv_format"}
)
"""Settings that fit one model and card and may not fit another."""


class GuideCard:
    """Gives the guide its card, and takes it away again when another model is loaded.

    Flags override what is chosen here; settings from the environment and from files, made for
    other models and a real card, do not. Where a real card computes, none is made up, and flags
    beside `--device cuda` speak of that one.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        given = engine_settings(arguments)
        on_real = given.device == "cuda"
        self._usual = off_the_card(given) if on_real else given
        self._made_up = engine_settings(
            with_card(without_card_flags(arguments) if on_real else arguments)
        )
        self._real = plan_settings(arguments)

    def fit(self, model: Path, settings: "EngineSettings") -> "EngineSettings":
        """Return the settings with which `model` is loaded: its own card, and no other's.

        The device may be another than that on which the settings held before.
        """
        if settings.device == "cuda":
            return self._onto_real(settings)
        if settings.device != "host":
            return settings
        if settings.plan is not None and settings.machine is None:
            settings = self._off_real(settings, settings.plan)
        if is_guide(model) == self._is_made_up(settings):
            return settings
        if is_guide(model):
            # What was chosen for other models since the start is theirs again after the guide.
            self._usual = settings
        source = self._made_up if is_guide(model) else self._usual
        return replace(
            settings,
            max_context=source.max_context,
            chunk=source.chunk,
            plan=source.plan,
            machine=source.machine,
        )

    def _onto_real(self, settings: "EngineSettings") -> "EngineSettings":
        """Return settings that held on the host, with or without a card, for a real one."""
        if settings.plan is not None and settings.machine is None:
            return settings
        source = self._usual if self._is_made_up(settings) else settings
        plan = replace(
            source.plan or self._real,
            max_context=source.max_context,
            prefill=source.chunk or None,
        )
        return replace(
            settings,
            max_context=source.max_context,
            chunk=source.chunk,
            plan=plan,
            machine=None,
        )

    def _off_real(self, settings: "EngineSettings", plan: "PlanSettings") -> "EngineSettings":
        """Return settings that held on a real card for the host, and keep them for the way back."""
        self._real = plan
        machine = self._usual.machine
        return replace(settings, plan=None if machine is None else plan, machine=machine)

    def sampling(self, model: Path, usual: "SamplingSettings") -> "SamplingSettings":
        """Return how the answers of `model` are drawn."""
        return guide_sampling(self._arguments, model, usual)

    def remembered(self, model: Path) -> int | None:
        """Return how many exchanges `model` is told again with a question; None: all of them."""
        return GUIDE_REMEMBERS if is_guide(model) else None

    def keeps(self, field: str, settings: "EngineSettings") -> bool:
        """Whether a choice is one for the next start too, not only for a made-up card."""
        return not self._is_made_up(settings) or field not in OF_THE_MODEL

    def _is_made_up(self, settings: "EngineSettings") -> bool:
        # A real card is no machine that was made up: then neither of the two has one.
        return settings.machine is not None and settings.machine == self._made_up.machine


def guide_sampling(
    arguments: argparse.Namespace, model: Path, usual: "SamplingSettings"
) -> "SamplingSettings":
    """Return `usual`, for the guide with temperature 0 unless someone has set another.

    What it says are facts about the program: of two words the less likely one is the wrong one.
    """
    is_set = "temperature" in vars(arguments)
    return replace(usual, temperature=0.0) if is_guide(model) and not is_set else usual


def off_the_card(settings: "EngineSettings") -> "EngineSettings":
    """Return settings for a real card as they are on a host without any."""
    from stratadesk.engine.commands import Device

    return replace(settings, device=Device.HOST, plan=None, machine=None)


def without_card_flags(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return arguments for a real card as they are for the host, without flags for its memory."""
    of_memory = {flag.field for flag in VRAM_FLAGS}
    given = {field: value for field, value in vars(arguments).items() if field not in of_memory}
    return argparse.Namespace(**{**given, "device": "host"})


def with_card(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with the flags that make up the guide's card, where they lack them."""
    kept = kept_fields(arguments) & OF_THE_MODEL
    given = {field: value for field, value in vars(arguments).items() if field not in kept}
    size = given.get("vram_mib", max(CARD_MIB, given.get("free_mib", 0)))
    card = {"vram_mib": size, UNSHARED: True}
    filled = argparse.Namespace(**{**CHOICES, **card, **given})
    setattr(filled, FIELDS, kept_fields(arguments) - kept)
    return filled
