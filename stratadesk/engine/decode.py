"""Writing an answer: sample a token, show its text, read it, until something ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratadesk.engine.commands import Generate, Message
from stratadesk.engine.events import Channel, DecodeProgress, FinishReason
from stratadesk.engine.sampler import Sampler
from stratadesk.engine.session import Session
from stratadesk.engine.textstream import Piece, TextStream

if TYPE_CHECKING:
    from stratadesk.engine.protocols import Writer
    from stratadesk.engine.tokenizer import Tokenizer


class Decode:
    """The answer to one request, written on the session that holds its prompt.

    `tokens` are all ids sampled so far. `finish_reason` is None until an end token, a stop
    string, the token limit or the end of the context is met. The last token sampled is read by
    the next step only, so an answer always ends with one that is not held: `pending`.

    Raises:
        UsageError: sampling settings out of range.
    """

    def __init__(
        self,
        command: Generate,
        session: Session[Any],
        tokenizer: Tokenizer,
        *,
        starts_thinking: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._session = session
        self._tokenizer = tokenizer
        self._clock = clock
        self._sampler = Sampler(command.sampling)
        self._stream = TextStream(command.sampling.stop, starts_thinking=starts_thinking)
        self._shown: dict[Channel, list[str]] = {channel: [] for channel in Channel}
        self._writer: Writer | None = None
        self._first_at = self._last_at = 0.0
        self._thinking_tokens = 0
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None

    @property
    def seconds(self) -> float:
        """Time from the first token to the last."""
        return self._last_at - self._first_at

    @property
    def pending(self) -> tuple[int, ...]:
        """The token that was sampled and not read, if any was sampled."""
        return tuple(self.tokens[-1:])

    def step(self) -> list[Piece]:
        """Sample one token; return the text that it makes safe to show."""
        if self._writer is not None:
            self._session.hold(self.tokens[-1], self._writer)
        elif self.tokens:
            self._session.read(self.tokens[-1:], logits=True)
        else:
            self._writer = self._session.writer(self._sampler, self._end_ids)
        token = self._drawn()
        ended = token in self._tokenizer.end_ids and not self._command.ignore_eos
        pieces = [] if ended else self._push(token)
        self.finish_reason = self._reason(ended=ended)
        return self._keep(pieces)

    def close(self) -> list[Piece]:
        """Return the text still held back; nothing can be written after it."""
        return self._keep(self._stream.finish())

    def text(self, channel: Channel) -> str:
        """Return all text shown in `channel`."""
        return "".join(self._shown[channel])

    def message(self) -> Message | None:
        """Return the answer as a chat keeps it, None before the first token."""
        if not self.tokens:
            return None
        return Message("assistant", self.text(Channel.ANSWER), self.text(Channel.THINKING))

    def unshown(self) -> str:
        """Say in words what the tokens hold that the text does not, empty when nothing."""
        if self._stream.stopped is not None:
            return "was cut at a stop string"
        if any(map(self._tokenizer.is_control, self.tokens[:-1])):
            return "has control tokens, which are not shown"
        return ""

    def progress(self) -> DecodeProgress:
        """Return how far the answer is."""
        return DecodeProgress(
            request_id=self._command.request_id,
            tokens=len(self.tokens),
            thinking_tokens=self._thinking_tokens,
            seconds=self.seconds,
            context_used=len(self._session.ids),
            context_total=len(self._session.ids) + self._session.room,
        )

    @property
    def _end_ids(self) -> frozenset[int]:
        return frozenset() if self._command.ignore_eos else frozenset(self._tokenizer.end_ids)

    def _drawn(self) -> int:
        """One more token, from the model itself or from its logits."""
        token = self._writer.next() if self._writer is not None else None
        if token is None:
            token = self._sample()
        self._last_at = self._clock()
        if not self.tokens:
            self._first_at = self._last_at
        self.tokens.append(token)
        return token

    def _sample(self) -> int:
        logits = self._session.logits
        if self._writer is not None:
            logits, self._writer = self._writer.logits, None
        if logits is None:
            raise RuntimeError("there are no logits to sample from")
        return self._sampler.next(logits, self._session.ids)

    def _push(self, token: int) -> list[Piece]:
        pieces = []
        if not self._tokenizer.is_control(token):
            pieces = self._stream.push(self._tokenizer.token_bytes(token))
        self._thinking_tokens += self._stream.channel is Channel.THINKING
        return pieces

    def _reason(self, *, ended: bool) -> FinishReason | None:
        if ended or self._stream.stopped is not None:
            return FinishReason.STOP
        if len(self.tokens) == self._command.max_tokens or self._session.room == 0:
            return FinishReason.LENGTH
        return None

    def _keep(self, pieces: list[Piece]) -> list[Piece]:
        for piece in pieces:
            self._shown[piece.channel].append(piece.text)
        return pieces
