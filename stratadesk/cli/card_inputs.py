"""The flags about a card's memory, made into the machine and the settings of a plan."""

import argparse
from typing import TYPE_CHECKING

from stratadesk.cli.kept_settings import kept_fields
from stratadesk.errors import UsageError
from stratadesk.units import GIB, MIB
from stratadesk.vram_flags import VRAM_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stratadesk.engine.commands import Device
    from stratadesk.engine.vram.machine_facts import MachineFacts
    from stratadesk.engine.vram.plan_settings import PlanSettings

SMALL_CARD_MIB = 256
SMALL_BLOCK, BLOCK = 64 * 1024, 2 * MIB
"""What a simulated card maps at once where --vram-block-mib does not say."""

UNSHARED = "unshared"
"""In the arguments, beside the flags: no other program and no CUDA context hold any of the card."""

OF_A_CARD = frozenset(
    {"vram_mib", "free_mib", *(flag.field for flag in VRAM_FLAGS)} - {"prefill", "mtp"}
)
"""Any of these flags says that the model is to run on a card; on the host, on a simulated one."""


MADE_UP = {"vram_mib": "--vram-mib", "free_mib": "--free-mib", "vram_block_mib": "--vram-block-mib"}
"""Flags that describe a card which is not there."""

ALL_THERE = "keeps all experts on the card and lends nothing"
NOT_YET = {
    "expert_cache": ("--expert-cache", ALL_THERE),
    "prefill_head_alias": ("--prefill-head-alias", ALL_THERE),
    "prefill_layout": ("--prefill-layout", ALL_THERE),
    "short_read": ("--short-read", ALL_THERE),
    "pin_gib": ("--pin-gib", ALL_THERE),
    "prefill": ("--prefill", "reads prompts through decode windows of eight tokens"),
    "force": ("--force", "loads a model onto a card only with the whole reserve free"),
}
"""Flags that choose what a real card does not do yet, unless they say "auto", and why not."""


def card_for(
    arguments: argparse.Namespace, device: "Device"
) -> "tuple[PlanSettings | None, MachineFacts | None]":
    """Return settings and machine for a model on `device`: a real card's, or `simulated_card`'s.

    Raises:
        UsageError: flags that a real card cannot follow.
    """
    if device != "cuda":
        return simulated_card(arguments)
    refused = unfollowed(arguments)
    if refused is not None:
        raise refused
    return plan_settings(arguments), None


def unfollowed(arguments: argparse.Namespace) -> UsageError | None:
    """Say which flag a real card cannot follow; None where there is no such flag."""
    given = vars(arguments)
    if UNSHARED in given:
        return None
    made_up = sorted((given.keys() - kept_fields(arguments)) & MADE_UP.keys())
    if made_up:
        return UsageError(
            f"{MADE_UP[made_up[0]]} makes a card up, and --device cuda computes on the real one.",
            "Leave one of the two out.",
        )
    flag, why = next(not_yet(arguments), ("", ""))
    if not flag:
        return None
    return UsageError(
        f"{flag} cannot be had with --device cuda yet: this version {why}.",
        "Leave it out, or use --device host.",
    )


def not_yet(arguments: argparse.Namespace) -> "Iterator[tuple[str, str]]":
    """The flags on the command line that no real card follows, each as written, and why."""
    given = vars(arguments)
    for field in sorted((given.keys() - kept_fields(arguments)) & NOT_YET.keys()):
        flag, why = NOT_YET[field]
        value = given[field]
        # A number 0 is a choice, too, though it equals False.
        if value != "auto" and value is not False:
            yield flag if value is True else f"{flag} {value}", why


def simulated_card(
    arguments: argparse.Namespace,
) -> "tuple[PlanSettings | None, MachineFacts | None]":
    """Return settings and machine where the flags speak of a card, else None for both.

    Values that come from the environment or a settings file only fill in what flags leave open.
    RAM is this machine's own.
    """
    if not OF_A_CARD & (vars(arguments).keys() - kept_fields(arguments)):
        return None, None
    from dataclasses import replace

    import psutil

    machine = machine_facts(arguments)
    settings = plan_settings(arguments)
    if not vars(arguments).get("vram_block_mib"):
        small = machine.card < SMALL_CARD_MIB * MIB
        settings = replace(settings, block_bytes=SMALL_BLOCK if small else BLOCK)
    return settings, replace(machine, ram=psutil.virtual_memory().total)


def machine_facts(arguments: argparse.Namespace) -> "MachineFacts":
    """Build the machine from the flags given; what is left out takes the defaults.

    Raises:
        UsageError: more VRAM is said to be free than the card has.
    """
    from stratadesk.engine.vram.machine_facts import MachineFacts, Rates, System, this_system

    given = vars(arguments)
    facts = MachineFacts(system=System(given["os"]) if "os" in given else this_system())
    rates = Rates(link=given["link_gbps"] * 1e9) if "link_gbps" in given else facts.rates
    card = given["vram_mib"] * MIB if "vram_mib" in given else facts.card
    free = given["free_mib"] * MIB if "free_mib" in given else None
    if free is not None and free > card:
        raise UsageError(
            f"--free-mib {free // MIB} is more than the card has: {card // MIB} MiB.",
            "Give a larger --vram-mib, or a smaller --free-mib.",
        )
    unshared = UNSHARED in given
    return MachineFacts(
        card=card,
        free=free,
        desktop=0 if unshared else facts.desktop,
        context=0 if unshared else facts.context,
        system=facts.system,
        ram=int(given["ram_gib"] * GIB) if "ram_gib" in given else facts.ram,
        commit=int(given["commit_gib"] * GIB) if "commit_gib" in given else None,
        rates=rates,
    )


def plan_settings(arguments: argparse.Namespace) -> "PlanSettings":
    """Build the settings from the flags given."""
    from stratadesk.engine.commands import KvFormat
    from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings

    given, usual = vars(arguments), PlanSettings()
    layout = given.get("prefill_layout", "auto")
    return PlanSettings(
        reserve=given["vram_reserve_mib"] * MIB if "vram_reserve_mib" in given else usual.reserve,
        max_context=given.get("max_context", usual.max_context),
        kv_format=KvFormat(given.get("kv_format", usual.kv_format)),
        expert_cache=_number(given.get("expert_cache")),
        prefill=_number(given.get("prefill")),
        alias=HeadAlias(given.get("prefill_head_alias", usual.alias)),
        prefill_layout=None if layout == "auto" else Layout(layout),
        short_read=_number(given.get("short_read")),
        pin=_pin(given.get("pin_gib")),
        mtp=given.get("mtp", usual.mtp),
        drafts=given.get("spec", usual.drafts),
        block_bytes=max(1, given.get("vram_block_mib", 0) * MIB),
        force=given.get("force", usual.force),
    )


def _number(value: str | int | None) -> int | None:
    """None for "auto" and for a flag that was left out."""
    return value if isinstance(value, int) else None


def _pin(value: str | float | None) -> int | None:
    from stratadesk.engine.vram.plan_settings import PIN_ALL

    if value == "all":
        return PIN_ALL
    return int(value * GIB) if isinstance(value, int | float) else None
