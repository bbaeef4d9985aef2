"""The phases of the memory on the card, which may follow which, and what a change tells.

```
EMPTY → LOADING → READY ⇄ PROMPT → RETURNING → DECODING → READY
                    ↘ RESIZING ↙ (also out of DECODING and back)
PROMPT, DECODING → CANCELLING → READY      any but EMPTY → FAILED → RETURNING → READY
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from stratadesk.engine.vram.ledger import Ledger
from stratadesk.engine.vram.plan_settings import Layout

if TYPE_CHECKING:
    from stratadesk.engine.vram.resizing import Resize


class VramState(StrEnum):
    """What the memory is used for."""

    EMPTY = "empty"
    """Nothing is loaded."""
    LOADING = "loading"
    """Weights are being written; nothing may be computed."""
    READY = "ready"
    """Head and slots hold what they should; no request runs."""
    PROMPT = "prompt"
    """A prompt is read; its buffers may lie over the head and over lent slots."""
    RETURNING = "returning"
    """The head is read back and checked, lent slots become the cache's again."""
    DECODING = "decoding"
    """The answer is computed: logits of the prompt's last token, then token by token."""
    CANCELLING = "cancelling"
    """As RETURNING, for a request that was stopped."""
    RESIZING = "resizing"
    """Blocks are mapped or unmapped at the tail."""
    FAILED = "failed"
    """What the memory holds is not certain; nothing may be computed before a reset."""


class HeadPlace(StrEnum):
    """Where the output head is."""

    IN = "in"
    """In its region, with the right checksum."""
    OUT = "out"
    """Overwritten, or not yet written."""
    RETURNING = "returning"
    """Being read back."""


def _next_states() -> dict[VramState, frozenset[VramState]]:
    s = VramState
    return {
        s.EMPTY: frozenset({s.LOADING}),
        s.LOADING: frozenset({s.READY, s.EMPTY, s.FAILED}),
        s.READY: frozenset({s.PROMPT, s.DECODING, s.RESIZING, s.EMPTY, s.FAILED}),
        s.PROMPT: frozenset({s.RETURNING, s.CANCELLING, s.FAILED}),
        s.RETURNING: frozenset({s.DECODING, s.READY, s.FAILED}),
        s.DECODING: frozenset({s.READY, s.CANCELLING, s.RESIZING, s.FAILED}),
        s.CANCELLING: frozenset({s.READY, s.FAILED}),
        s.RESIZING: frozenset({s.READY, s.DECODING, s.FAILED}),
        s.FAILED: frozenset({s.RETURNING, s.EMPTY}),
    }


NEXT_STATES: Mapping[VramState, frozenset[VramState]] = MappingProxyType(_next_states())
"""Which states may follow each state."""

COMPUTING = frozenset({VramState.READY, VramState.PROMPT, VramState.DECODING})
"""States in which a kernel may read the slots that are not lent, and the head when it is in."""

RESTING = frozenset({VramState.READY, VramState.DECODING, VramState.RESIZING})
"""States in which nothing is lent and the head is in."""


@dataclass(frozen=True, slots=True)
class VramPhase:
    """The memory went into `state`; figures are those right after the change.

    `layout` is that of the prompt being read or just read, None when none is. `bytes_lent` counts
    the prompt's buffers, in bytes; `slots_lent` the slots that they touch. `return_s` is how long
    the head's last return took in seconds, check included. `resize` is set when a resize has
    just been done, `why` when the state is FAILED.
    """

    state: VramState
    at: float
    layout: Layout | None
    bytes_lent: int
    slots_lent: int
    head: HeadPlace
    head_bytes: int
    return_s: float
    arena_end: int
    ledger: Ledger
    resize: Resize | None = None
    why: str = ""
