"""Operations of block-sparse attention; see `ops.Ops` for what holds of all of them."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class BlockOps(Protocol):
    """What attention to chosen tokens needs besides the operations of every family."""

    def index_state(self, context: int, block: int, size: int) -> Any:
        """Keys of `size` values for blocks of `block` of `context` tokens; none complete."""

    def index_blocks(
        self,
        rows: Any,
        norm: Any,
        eps: float,
        rope: tuple[npt.NDArray[np.float64], float],
        start: int,
        state: Any,
    ) -> None:
        """Make the keys of the blocks that rows [T, d] of the tokens from `start` on complete.

        A block's key is rope(rms(mean of its rows; norm)) in NEOX form at its first token;
        `rope` are frequencies and magnitude as for `rope_table`.
        """

    def select_keys(self, queries: Any, start: int, budget: int, state: Any) -> Any:
        """Tokens that each query sees, from queries [T, heads, d] of the tokens from `start` on.

        A query at p sees those of the block that p + 1 is in or begins, then whole blocks before
        it, the larger Σ_heads max(0, q·key) first, then the first tokens of one more block, until
        it sees `budget` tokens. Of blocks with equal sums the earlier come first.
        """

    def attend_to(
        self, q: Any, k: Any, v: Any, cache: Any, start: int, scale: float, visible: Any
    ) -> Any:
        """As `Ops.attention`, but a query sees only its tokens of `visible`, which it is among."""
