"""The words in which slots, misses and copies are spoken of."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

NO_SLOT = -1
"""In the residency map: the expert is in no slot."""
NO_EXPERT = -1
"""In the slot table: the slot is for no expert."""
NO_TICKET = 0
"""No copy: tickets count from 1 and are never used twice."""
NEVER = 0
"""The stamp of a slot that no step has used: steps count from 1."""


class SlotState(IntEnum):
    """What a slot may be used for."""

    EMPTY = 0
    """Free for a missed expert."""
    HOLDING = 1
    """Has the complete bytes of its expert; the only state that the residency map names."""
    FILLING = 2
    """A missed expert's bytes are being copied in by the decode step."""
    LENT = 3
    """Its bytes belong to the prompt's buffers."""
    RESERVED = 4
    """Kept for an expert that the background refill brings back."""
    UNMAPPED = 5
    """Its bytes were given back to the card."""


class PlacementKind(StrEnum):
    """Where a step finds an expert."""

    HIT = "hit"
    FILL = "fill"
    BYPASS = "bypass"


class Placement(NamedTuple):
    """Where a decode step finds `expert` of `layer`.

    HIT: in `slot`. FILL: copy it into `slot`, then report the placement as filled or failed.
    BYPASS: read it from the host tier; `slot` is `NO_SLOT`. `ticket` is that of the fill.
    """

    kind: PlacementKind
    layer: int
    expert: int
    slot: int
    ticket: int


class Reservation(NamedTuple):
    """A slot kept for the background refill to bring `expert` of `layer` back into."""

    layer: int
    expert: int
    slot: int
    ticket: int
