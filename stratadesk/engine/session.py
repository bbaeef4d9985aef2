"""The one sequence whose KV cache and recurrent state a loaded model holds.

A recurrent state cannot be rolled back, so a session only grows or starts afresh. Its ids are
exactly the tokens that were computed: a token that was sampled last and never read is not one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from stratadesk.engine.commands import Message
from stratadesk.engine.prompt import Prompt
from stratadesk.engine.protocols import DrawsTokens, Model, Reading, StateT, Writer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stratadesk.engine.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Turn:
    """What the ids of a session stand for: a prompt of `prompt_tokens` ids, then an answer.

    `pending` are ids of the answer that were sampled but not read, at most one. `answer` is None
    until the answer is complete. `unshown` says in words what the answer's ids hold that its
    text does not, empty when nothing.
    """

    prompt: Prompt
    prompt_tokens: int
    pending: tuple[int, ...] = ()
    answer: Message | None = None
    unshown: str = ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The chat as it is now: the prompt's messages and the answer."""
        return self.prompt.messages + ((self.answer,) if self.answer is not None else ())


class Session(Generic[StateT]):
    """Reads tokens into a model's state and keeps books of them.

    `turn` says what the ids stand for (None: nothing is held). `logits` are those after the
    last id, float32 [vocab], or None when they were not asked for. `lost` says in words why
    nothing is held although something was, empty otherwise.
    """

    def __init__(self, model: Model[StateT]) -> None:
        self._model = model
        self._state: StateT | None = None
        self._ids: list[int] = []
        self.turn: Turn | None = None
        self.logits: NDArray[np.float32] | None = None
        self.lost = ""

    @property
    def ids(self) -> Sequence[int]:
        """The tokens held, in order; a live view, not to be changed."""
        return self._ids

    @property
    def room(self) -> int:
        """How many more tokens the context takes."""
        return self._model.context - len(self._ids)

    def restart(self) -> None:
        """Hold nothing, with a state ready to read into.

        Raises:
            MemoryError: when there is no room for a state.
        """
        if self._state is None or self._ids:
            self.drop("")
            self._state = self._model.new_state()
        self.turn, self.lost = None, ""

    def begin(self, fresh: int) -> Reading:
        """Begin a request that reads `fresh` tokens, 0 if all of its prompt is held."""
        return self._model.begin_request(fresh)

    def end(self, *, cancelled: bool) -> None:
        """End the request; what the model lent to it is back afterwards."""
        if cancelled:
            self._model.recover()
        else:
            self._model.end_request()

    def read(self, tokens: Sequence[int], *, logits: bool) -> None:
        """Append `tokens` (at least one) to the state; keep the logits after the last if asked.

        When the model fails, the session must be dropped: see `dropped_on_failure`.
        """
        if self._state is None:
            raise RuntimeError("a session reads only after restart()")
        self.logits = self._model.forward(self._state, tokens, logits="last" if logits else "none")
        self._ids.extend(tokens)

    def writer(self, sampler: Sampler, end_ids: Collection[int]) -> Writer | None:
        """Let the model draw the answer's tokens; None where it cannot, or there are no logits."""
        if self.logits is None or not isinstance(self._model, DrawsTokens):
            return None
        return self._model.writer(self._state, sampler, end_ids)

    def hold(self, token: int, writer: Writer) -> None:
        """Keep books of a token that `writer` has given and read."""
        writer.hold()
        self.logits = None
        self._ids.append(token)

    def drop(self, why: str) -> None:
        """Release the state and forget all; `why` is what the next prompt's note will say."""
        self.lost = why
        self._state = None
        self._ids.clear()
        self.turn = None
        self.logits = None

    @contextmanager
    def dropped_on_failure(self, why: str) -> Iterator[None]:
        """Drop the session if the `with` block raises; else check the books at its end."""
        with ExitStack() as undo:
            undo.callback(self.drop, why)
            undo.callback(self._model.recover)
            yield
            self.verify()
            undo.pop_all()

    def verify(self) -> None:
        """Check that the books agree with the model.

        Raises:
            RuntimeError: when the state holds another number of tokens than the session's ids.
        """
        position = self._state.position if self._state is not None else 0
        if position != len(self._ids):
            raise RuntimeError(f"the state holds {position} tokens, the chat {len(self._ids)}")
