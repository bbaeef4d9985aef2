"""One request from prompt to answer, a chunk or a token at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from stratadesk.engine.chat_template import thinking_open
from stratadesk.engine.commands import Generate
from stratadesk.engine.decode import Decode
from stratadesk.engine.events import (
    Channel,
    Event,
    FinishReason,
    Phase,
    PromptPlanned,
    RequestFinished,
    RequestStarted,
    TextDelta,
    Timings,
)
from stratadesk.engine.prefill import Prefill
from stratadesk.engine.prefix import plan_reading
from stratadesk.engine.prompt import make_prompt
from stratadesk.engine.protocols import Reading
from stratadesk.engine.runtime import Runtime
from stratadesk.engine.session import Turn
from stratadesk.engine.textstream import Piece
from stratadesk.engine.tokenizer import Tokenizer
from stratadesk.errors import ContextOverflowError, UsageError

PROGRESS_INTERVAL_S = 0.05
"""Seconds between two `DecodeProgress` events."""

log = logging.getLogger(__name__)


class Request:
    """Answers `command` on the model of `runtime`, telling `emit` all that happens.

    Making one renders, tokenizes and checks the prompt and leaves the session as it is. Then
    `begin`, and `step` until `finished`; `cancel` between two steps ends it early.

    Raises:
        UsageError: a prompt without a token, unknown token ids, settings out of range.
        TemplateError: the chat template fails on the messages.
        ContextOverflowError: the prompt leaves no room for an answer.
    """

    def __init__(
        self,
        command: Generate,
        runtime: Runtime,
        emit: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_max_tokens(command.max_tokens)
        template = runtime.template_for(command)
        self.command = command
        self.cancelled = False
        self.finished = False
        self._runtime = runtime
        self._emit = emit
        self._clock = clock
        self._prompt = make_prompt(command, runtime.tokenizer, template)
        self._plan = plan_reading(self._prompt, runtime.session, runtime.tokenizer)
        _check_length(len(self._plan.ids), runtime.model.context)
        self._prefill = Prefill(runtime.session, self._plan, clock)
        self._decode = Decode(
            command,
            runtime.session,
            runtime.tokenizer,
            starts_thinking=_ends_in_thinking(self._plan.ids, runtime.tokenizer),
            clock=clock,
        )
        self._told_at = clock()

    @property
    def phase(self) -> Phase:
        """What the next step does: PROMPT reads, DECODING writes."""
        return Phase.DECODING if self._prefill.finished else Phase.PROMPT

    def begin(self) -> None:
        """Say what will be read and make the session ready for it."""
        plan = self._plan
        self._emit(RequestStarted(self.command.request_id, len(plan.ids), plan.reused, plan.note))
        log.info("%d prompt tokens, %d of them reused. %s", len(plan.ids), plan.reused, plan.note)
        if not plan.reused:
            self._runtime.session.restart()
        self._tell_reading(self._prefill.begin())
        self._emit(self._prefill.progress(self.command.request_id))
        self._runtime.session.turn = Turn(self._prompt, len(plan.ids))

    def step(self) -> None:
        """Read one chunk of the prompt, or write one token of the answer."""
        if not self._prefill.finished:
            self._prefill.step()
            self._emit(self._prefill.progress(self.command.request_id))
            return
        self._show(self._decode.step())
        if self._decode.finish_reason is not None:
            self._finish(self._decode.finish_reason)
        elif self._clock() - self._told_at >= PROGRESS_INTERVAL_S:
            self._tell_progress()

    def cancel(self) -> None:
        """End the answer here; what was written is kept."""
        self._finish(FinishReason.CANCELLED)

    def _tell_reading(self, reading: Reading) -> None:
        log.info("read by %s path, chunk %d: %s", reading.path, reading.chunk, reading.why)
        self._emit(
            PromptPlanned(
                request_id=self.command.request_id,
                path=reading.path,
                layout=reading.layout or "",
                chunk=reading.chunk,
                slots_lent=reading.slots_lent,
                head_out=reading.head_out,
                seconds=reading.seconds,
                why=reading.why,
            )
        )

    def _finish(self, reason: FinishReason) -> None:
        self._runtime.session.end(cancelled=reason is FinishReason.CANCELLED)
        self._show(self._decode.close())
        self._settle_session()
        if self._decode.tokens:
            self._tell_progress()
        if self._runtime.control is not None:
            # Whoever stops listening with the result has the answer's last hits and misses.
            self._runtime.control.attend()
        self._emit(self._result(reason))
        self.finished = True

    def _settle_session(self) -> None:
        self._runtime.session.turn = Turn(
            self._prompt,
            len(self._plan.ids),
            self._decode.pending,
            self._decode.message(),
            self._decode.unshown(),
        )

    def _show(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._emit(TextDelta(self.command.request_id, piece.channel, piece.text))

    def _tell_progress(self) -> None:
        self._told_at = self._clock()
        self._emit(self._decode.progress())

    def _result(self, reason: FinishReason) -> RequestFinished:
        return RequestFinished(
            request_id=self.command.request_id,
            finish_reason=reason,
            prompt_tokens=len(self._plan.ids),
            reused=self._plan.reused,
            tokens=tuple(self._decode.tokens),
            text=self._decode.text(Channel.ANSWER),
            reasoning=self._decode.text(Channel.THINKING),
            timings=self._timings(),
            context_used=len(self._runtime.session.ids),
            context_total=self._runtime.model.context,
        )

    def _timings(self) -> Timings:
        prefill_s, decode_s = self._prefill.seconds, self._decode.seconds
        return Timings(
            load_s=self._runtime.load_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            prefill_tps=_rate(self._prefill.read, prefill_s),
            decode_tps=_rate(len(self._decode.tokens) - 1, decode_s),
        )


def never_started(request_id: int, runtime: Runtime | None) -> RequestFinished:
    """Return the result of a request that was cancelled while it waited for its turn."""
    return RequestFinished(
        request_id=request_id,
        finish_reason=FinishReason.CANCELLED,
        prompt_tokens=0,
        reused=0,
        tokens=(),
        text="",
        reasoning="",
        timings=Timings(0.0, 0.0, 0.0, 0.0, 0.0),
        context_used=len(runtime.session.ids) if runtime is not None else 0,
        context_total=runtime.model.context if runtime is not None else 0,
    )


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0


def _check_max_tokens(max_tokens: int) -> None:
    if max_tokens < 0:
        raise UsageError(
            f"The answer cannot have {max_tokens} tokens at most.",
            "Give a positive number, or 0 for no limit but the context.",
        )


def _check_length(n_prompt: int, context: int) -> None:
    """Raise unless the prompt has a token and leaves room for at least one of the answer.

    A vocabulary that lacks the characters of a text makes no token of it.
    """
    if not n_prompt:
        raise UsageError(
            "The model's vocabulary makes no token of this prompt.", "Write something else."
        )
    if n_prompt >= context:
        raise ContextOverflowError(
            f"The prompt has {n_prompt:,} tokens, and the context holds {context:,}.",
            "Shorten it, start a new chat, or load the model with a larger --max-context.",
        )


def _ends_in_thinking(ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Tell whether the answer starts inside thinking, from what follows the last control token.

    What users wrote stands before that one, so a `<think>` of theirs does not count.
    """
    marker = next((i for i in reversed(range(len(ids))) if tokenizer.is_control(ids[i])), -1)
    return thinking_open(tokenizer.decode(ids[marker + 1 :]))
