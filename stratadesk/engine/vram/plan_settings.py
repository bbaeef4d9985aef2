"""What a user may choose about the card's memory, with the defaults; sizes are in bytes."""

from dataclasses import dataclass
from enum import StrEnum

from stratadesk.engine.commands import KvFormat
from stratadesk.units import MIB

DEFAULT_CONTEXT = 32_768
"""Without `--max-context`, a model's own length counts only up to this many tokens."""

PIN_ALL = 1 << 62
"""Stands for `--pin-gib all`: pin every expert."""

STAGING_ONLY = 1
"""`--expert-cache 1`: no slot but the staging slot, which is never part of the cache."""


class Layout(StrEnum):
    """Where the buffers for reading a prompt lie."""

    FIXED = "fixed"
    """In a region of their own."""
    LOAN = "loan"
    """Over slots lent from row 0 up; the head stays in."""
    ALIAS = "alias"
    """Over the head and, if it is too small, over slots behind it."""


class HeadAlias(StrEnum):
    """Whether prompts may take the head's bytes: as the planner finds best, always, never."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Choices; None leaves one to the planner.

    `max_context` is in tokens, 0 meaning the model's own length but at most 32,768.
    `expert_cache` counts expert slots in all, 1 meaning the staging slot alone. `prefill` is a
    prompt's chunk in tokens, `prefill_layout` the layout used where the alias is not.
    `short_read` is the largest number of fresh tokens that are read through decode windows.
    `pin` is in bytes or `PIN_ALL`. `drafts` (`--spec`) counts drafted tokens per step. The arena
    ends at a multiple of `block_bytes`. With `force`, a plan that would be refused is carried
    out as far as the card allows.
    """

    reserve: int = 590 * MIB
    max_context: int = 0
    kv_format: KvFormat = KvFormat.F16
    expert_cache: int | None = None
    prefill: int | None = None
    alias: HeadAlias = HeadAlias.AUTO
    prefill_layout: Layout | None = None
    short_read: int | None = None
    pin: int | None = None
    mtp: bool = False
    drafts: int = 0
    block_bytes: int = 1
    force: bool = False
