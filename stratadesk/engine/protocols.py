"""What the loop needs of a model, so that tests can put a small deterministic one in its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from stratadesk.engine.events import LoadProgress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stratadesk.engine.vram.phase_table import VramPhase
    from stratadesk.engine.vram.plan_settings import Layout

ProgressSink = Callable[[LoadProgress], None]
PhaseSink = Callable[["VramPhase"], None]
LogitsWanted = Literal["none", "last", "all"]


def tell_nobody(event: object) -> None:
    """Let an event pass."""


class State(Protocol):
    """KV cache and recurrent state of one sequence; it grows and cannot be rolled back."""

    @property
    def position(self) -> int:
        """Tokens held."""


StateT = TypeVar("StateT", bound=State)


class Reading(Protocol):
    """How a request's prompt is read."""

    @property
    def chunk(self) -> int:
        """Tokens computed at once."""

    @property
    def path(self) -> str:
        """The path: "prompt", or "decode" for a short one."""

    @property
    def layout(self) -> Layout | None:
        """Where the prompt's buffers lie; None on the decode path."""

    @property
    def slots_lent(self) -> int:
        """Expert slots that the buffers take."""

    @property
    def head_out(self) -> bool:
        """Whether they take the output head's bytes."""

    @property
    def seconds(self) -> float:
        """How long it should take."""

    @property
    def why(self) -> str:
        """Why it is read so, in words."""


class Writer(Protocol):
    """Draws the tokens of one answer where the model computes."""

    def next(self) -> int | None:
        """The next token; None when the host has to draw it from `logits`."""

    def hold(self) -> None:
        """The token given last is read and held."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """The logits that the last token was to be drawn from, [vocabulary]; ends the writing."""


@runtime_checkable
class DrawsTokens(Protocol):
    """A model that may draw tokens itself."""

    def writer(self, state: Any, sampler: Any, end_ids: Collection[int]) -> Writer | None:
        """Draw from the last logits on; None where the host has to."""


@runtime_checkable
class CanBeLost(Protocol):
    """A model on a card that may stop answering."""

    def check(self) -> None:
        """See whether the card still answers; raises DeviceLostError if not."""


class Model(Protocol[StateT]):
    """A loaded model, computing on one thread.

    Sizes are in bytes; `context` is the number of tokens that a state can hold.
    """

    @property
    def name(self) -> str:
        """The model's own name, or its file's."""

    @property
    def architecture(self) -> str:
        """The GGUF architecture, such as "qwen3moe"."""

    @property
    def device(self) -> str:
        """Where it computes: "host" or "cuda"."""

    @property
    def file_bytes(self) -> int:
        """Size of all shards."""

    @property
    def context(self) -> int:
        """Tokens that a state can hold."""

    @property
    def kv_bytes(self) -> int:
        """Size of the KV cache of one state."""

    @property
    def state_bytes(self) -> int:
        """Size of the recurrent state of one state."""

    @property
    def vocab_size(self) -> int:
        """Number of logits per position."""

    def new_state(self) -> StateT:
        """Return a state that holds no token."""

    def forward(
        self, state: StateT, tokens: Sequence[int], *, logits: LogitsWanted
    ) -> NDArray[np.float32] | None:
        """Append `tokens` to `state` in one go that cannot be interrupted.

        Returns float32 [vocab] for "last", [n_tokens, vocab] for "all", None for "none".
        """

    def begin_request(self, fresh: int) -> Reading:
        """Plan how `fresh` tokens are read, 0 for none, and lend what that needs.

        Until `end_request` or `recover`, `forward` belongs to this request.
        """

    def end_request(self) -> None:
        """The answer is complete; everything lent is back."""

    def recover(self) -> None:
        """The request was cancelled or failed; bring everything lent back, whatever happened."""

    def close(self) -> None:
        """Release the file and all buffers."""
