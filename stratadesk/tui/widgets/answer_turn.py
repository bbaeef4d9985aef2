"""What the model says, as it comes."""

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from stratadesk.engine.events import (
    Channel,
    DecodeProgress,
    Failure,
    PromptProgress,
    RequestFinished,
    RequestStarted,
)
from stratadesk.tui.handover import Answered
from stratadesk.tui.widgets.answer_status import AnswerStatus
from stratadesk.tui.widgets.bare import Bare, Remeasured, Stacked
from stratadesk.tui.widgets.failure_card import FailureCard
from stratadesk.tui.widgets.notice import Notice
from stratadesk.tui.widgets.safe_markdown import SafeMarkdown
from stratadesk.tui.widgets.thinking_block import ThinkingBlock


class AnswerTurn(Bare, Remeasured, Stacked, Vertical):
    """Thinking, text and one status line; `finish`, `fail` or `close` ends it.

    `text` and `reasoning` hold what was said so far, as the engine said it; `markdown` and
    `status` are the parts that show it.
    """

    def __init__(self, *, thinking_shown: bool) -> None:
        super().__init__()
        self.text = ""
        self.reasoning = ""
        self._thinking_shown = thinking_shown
        self._note = ""
        self._ended: RequestFinished | Failure | None = None
        self._thinking: ThinkingBlock | None = None
        self._speaker = Static("Model", classes="speaker", markup=False)
        self.markdown = SafeMarkdown()
        self.status = AnswerStatus()

    def compose(self) -> ComposeResult:
        """Make the heading, the text and the status line; thinking comes when there is any."""
        yield self._speaker
        yield self.markdown
        yield self.status

    async def started(self, event: RequestStarted, *, follow_up: bool) -> None:
        """The prompt is about to be read; say why if a follow-up cannot reuse what is held."""
        self.status.show(event)
        if follow_up:
            await self._remark(event.prefix_note)

    def reading(self, event: PromptProgress) -> None:
        """More of the prompt is read."""
        self.status.show(event)

    def writing(self, event: DecodeProgress) -> None:
        """More tokens are written, some of them thinking."""
        self.status.show(event)
        if self._thinking is not None:
            self._thinking.measure(event.seconds, event.thinking_tokens)

    async def feed(self, channel: Channel, text: str) -> None:
        """Append `text` to the answer or to the thinking."""
        if channel is Channel.THINKING:
            self.reasoning += text
            await self._think(text)
            return
        if not self.text:
            await self._end_thinking()
            self.add_class("-answering")
        self.text += text
        await self.markdown.feed(text)

    async def finish(self, event: RequestFinished) -> None:
        """The answer is complete, cut off, or stopped; what was said stays."""
        self._ended = event
        self.status.show(event)
        await self.close()

    async def fail(self, failure: Failure) -> None:
        """The answer failed; what was said stays."""
        self._ended = failure
        self.status.close()
        await self.close()
        await self.mount(FailureCard(failure))

    async def close(self) -> None:
        """Draw all that has come and end the streams."""
        try:
            await self._end_thinking()
        finally:
            await self.markdown.close()

    def record(self) -> Answered:
        """Return the answer as far as it came."""
        ended, thinking = self._ended, self._thinking
        return Answered(
            self.text,
            self.reasoning,
            self._note,
            *((0.0, 0) if thinking is None else thinking.measured),
            ended if isinstance(ended, RequestFinished) else None,
            ended if isinstance(ended, Failure) else None,
        )

    async def replay(self, record: Answered) -> None:
        """Show an answer of another run of the program as it was there."""
        await self._remark(record.note)
        if record.reasoning:
            await self.feed(Channel.THINKING, record.reasoning)
        if self._thinking is not None:
            self._thinking.measure(record.thought_s, record.thought_tokens)
        if record.text:
            await self.feed(Channel.ANSWER, record.text)
        if record.finished is not None:
            await self.finish(record.finished)
        elif record.failure is not None:
            # Nobody here holds the message that ChatML was offered for.
            await self.fail(replace(record.failure, offers_chatml=False))
        else:
            self.status.close()
            await self.close()

    def show_thinking(self, shown: bool) -> None:
        """Unfold or fold the thinking, now and when there will be some."""
        self._thinking_shown = shown
        if self._thinking is not None:
            self._thinking.unfolded = shown

    async def _remark(self, note: str) -> None:
        self._note = note
        if note:
            await self.mount(Notice(note), after=self._speaker)

    async def _think(self, text: str) -> None:
        if self._thinking is None:
            self._thinking = ThinkingBlock(unfolded=self._thinking_shown)
            await self.mount(self._thinking, before=self.markdown)
        await self._thinking.feed(text)

    async def _end_thinking(self) -> None:
        if self._thinking is not None:
            await self._thinking.close()
