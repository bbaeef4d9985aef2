"""Running a draft head beside the trunk: following it through the chat, and drafting ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from stratadesk.engine.architectures.base import Drafter
    from stratadesk.engine.ops import LayerState, Ops, Tensor

Ids = npt.NDArray[np.int32]


@dataclass(slots=True)
class DraftState:
    """What a draft head keeps of one sequence.

    Its block's KV cache, the trunk's state at the last token held, and its own state after the
    last draft. `chained` counts the drafts since the last token held.
    """

    block: LayerState
    trunk: LayerState
    own: LayerState
    chained: int = 0

    def commit(self) -> None:
        """Count the last chunk as held; drafts made before it are forgotten."""
        self.block.commit()
        self.trunk.commit()
        self.chained = 0


class Drafting:
    """Computes a draft head of a model of `width` in a backend."""

    def __init__(self, ops: Ops, head: Drafter, width: int) -> None:
        self._ops = ops
        self.head = head
        self._width = width

    def new_state(self, context: int, kv_format: str) -> DraftState:
        """A state for `context` tokens that holds none."""
        ops = self._ops
        block = self.head.new_state(ops, context, kv_format)
        return DraftState(block, ops.row_state(self._width), ops.row_state(self._width))

    def follow(self, state: DraftState, tokens: Ids, hidden: Tensor, start: int) -> Tensor:
        """Let the head read a chunk that the trunk has read; its states, [T, E].

        `hidden` [T, E] are the trunk's states. Row t belongs to the token t and the trunk's
        state before it, zeros before the first. The caller commits `state`.
        """
        before = self._ops.delay(hidden, state.trunk)
        self._ops.carry(hidden, state.trunk)
        return self.head.hidden(self._ops, tokens, before, start, state.block)

    def draft(self, state: DraftState, token: int, position: int) -> Tensor:
        """The head's state [1, E] for `token` as if it stood behind those held, `position` many.

        Called again it goes on behind the drafts made so far. Nothing is appended: the KV rows
        written are those that the tokens drafted will overwrite when they are read.
        """
        before = self._ops.carried(state.own if state.chained else state.trunk)
        start = position + state.chained
        hidden = self.head.hidden(
            self._ops, np.array([token], np.int32), before, start, state.block
        )
        self._ops.carry(hidden, state.own)
        state.own.commit()
        state.chained += 1
        return hidden
