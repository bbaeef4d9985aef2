"""The chat: what was said, what is being said, and the editor."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Cancel, CancelLoad, Generate, SamplingSettings
from stratadesk.engine.events import (
    DecodeProgress,
    EngineStopped,
    Event,
    Failure,
    LoadCancelled,
    ModelLoaded,
    Phase,
    PhaseChanged,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    TextDelta,
)
from stratadesk.exit_codes import ExitCode
from stratadesk.keys import find_key
from stratadesk.tui.conversation import Conversation
from stratadesk.tui.handover import ChatRecord, Turn
from stratadesk.tui.messages import TellEngine
from stratadesk.tui.model_wait import ModelWait
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.composer import Composer
from stratadesk.tui.widgets.failure_card import STARTS_AGAIN, FailureCard
from stratadesk.tui.widgets.notice import Notice
from stratadesk.tui.widgets.opening import LoadingLine
from stratadesk.tui.widgets.transcript import Transcript
from stratadesk.tui.widgets.user_turn import UserTurn

AnswerEvent = (
    RequestStarted | PromptProgress | TextDelta | DecodeProgress | RequestFinished | Failure
)

ANSWERS_NOW = " answers from here on."
CANCELLING = "Cancelling"
COMES_BACK = "StrataDesk has started again and is bringing the chat back."
STARTED_AGAIN = "StrataDesk has started again and kept the chat."
CHATML_NOTE = "ChatML stands in for the model's own template until another model is loaded."


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question on its way: the engine's request, the answer's place, the message."""

    request_id: int
    answer: AnswerTurn
    message: Composer.Ready


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is sent as soon as a model is ready, and the two turns that show it."""

    message: Composer.Ready
    question: UserTurn
    answer: AnswerTurn


class ChatPane(Vertical):
    """Sends what the editor posts and routes what the engine says to the answer in progress.

    A message that comes while a model is on its way waits for it.
    """

    class StopChanged(Message):
        """There is something else to stop than before."""

    def __init__(self, max_tokens: int, sampling: SamplingSettings) -> None:
        super().__init__()
        self._max_tokens = max_tokens
        self.sampling = sampling
        self.remembered: int | None = None
        """How many exchanges the model is told again with a question; None: all of them."""
        """How the next answers are drawn."""
        self._conversation = Conversation()
        self._asked = self._forgotten = 0
        self._exchange: Exchange | None = None
        self._waiting: Waiting | None = None
        self._model_wait = ModelWait()
        self._unanswered: Composer.Ready | None = None
        self._state = MonitorState()
        self._thinking_shown = False
        self._force_chatml = False
        self._comes_back = False
        self._about_return = Notice(COMES_BACK)
        self._turn = asyncio.Lock()
        self._loading = LoadingLine()
        self.transcript = Transcript()
        self.composer = Composer()

    def compose(self) -> ComposeResult:
        """Make the transcript and the editor."""
        yield self.transcript
        yield self._loading
        yield self.composer

    @property
    def busy(self) -> bool:
        """Whether an answer is in progress."""
        return self._exchange is not None

    @property
    def stoppable(self) -> str:
        """What `give_up` would do, in a word; nothing when there is nothing to give up."""
        if self._waiting is not None:
            return "take back"
        if self.busy:
            return "stop"
        return "cancel" if self._cancels_loading else ""

    @property
    def _cancels_loading(self) -> bool:
        return self._model_wait.on_its_way and not self._model_wait.cancelling

    @property
    def started_over(self) -> bool:
        """Whether a chat was forgotten and nothing was asked since."""
        return 0 < self._asked == self._forgotten

    @property
    def offers_chatml(self) -> bool:
        """Whether the last message can be answered with ChatML instead."""
        return self._unanswered is not None and not self.busy

    def show(self, state: MonitorState) -> None:
        """Draw what depends on the engine's state."""
        if self._model_wait.cancelling and state.load is not None:
            state = replace(state, load=replace(state.load, stage=CANCELLING, unit="", total=0))
        self._state = state
        self._loading.display = state.phase is Phase.LOADING and not self.transcript.empty
        self._loading.show(state)
        self.transcript.show(state)

    def show_thinking(self, shown: bool) -> None:
        """Unfold or fold all thinking, and that to come."""
        self._thinking_shown = shown
        self.transcript.show_thinking(shown)

    def expect_model(self) -> None:
        """A model was asked for: messages wait for it."""
        self._model_wait.expect()

    async def give_up(self) -> None:
        """Take back a message that waits; else stop the answer in progress; else the loading."""
        async with self._turn:
            if self._waiting is not None:
                await self._take_back(self._waiting)
                return
        if self.busy:
            self.stop()
        elif self._cancels_loading:
            self._model_wait.give_up()
            self.show(self._state)
            self.post_message(TellEngine(CancelLoad()))

    def stop(self) -> None:
        """Ask the engine to stop the answer in progress."""
        if self._exchange is not None:
            self._exchange.answer.status.stopping()
            self.post_message(TellEngine(Cancel(self._exchange.request_id)))

    async def start_over(self) -> None:
        """Stop and forget everything said."""
        async with self._turn:
            self.stop()
            if self._waiting is not None:
                await self._take_back(self._waiting)
            self._forgotten = self._asked
            self._exchange = self._unanswered = None
            self._conversation.clear()
            await self.transcript.clear()
        self.composer.focus_editor()

    def record(self) -> ChatRecord:
        """Return all there is for another run of the program."""
        return ChatRecord(
            self._conversation.messages, self.transcript.record(), *self.composer.record()
        )

    async def take_over(self, record: ChatRecord) -> None:
        """Go on with the chat of another run of the program; `bring_back` then shows it.

        What the engine says from now on stands below it.
        """
        self._comes_back = True
        self.composer.restore(record.draft, record.unanswered)
        self._conversation.restore(record.messages)
        await self.transcript.add(self._about_return)

    async def bring_back(self, turns: Sequence[Turn]) -> None:
        """Show the turns of the chat that was taken over, and say that it is back.

        Ends wherever the app is left meanwhile.
        """
        async with self._turn:
            await self.transcript.replay(
                without_announcement(turns), thinking_shown=self._thinking_shown
            )
            self._about_return.say(STARTED_AGAIN)
            self._comes_back = False
        if self.is_attached:
            self.composer.focus_editor()

    async def apply(self, event: Event) -> None:
        """Show what the engine said, as far as the chat is concerned."""
        if self._comes_back:
            # Of this nothing gets between the turns that come back above it.
            await self._apply(event)
            return
        async with self._turn:
            await self._apply(event)

    async def _apply(self, event: Event) -> None:
        match event:
            case ModelLoaded():
                await self._model_loaded(event)
            case PhaseChanged():
                if self._model_wait.ends(event.phase):
                    await self._waited(ready=event.phase is Phase.READY)
            case LoadCancelled():
                await self._load_cancelled(event)
            case Failure(request_id=None):
                await self.transcript.add_failure(event)
            case EngineStopped():
                await self._engine_stopped()
            case DeviceLost():
                await self._device_lost(event)
            case (
                RequestStarted()
                | PromptProgress()
                | TextDelta()
                | DecodeProgress()
                | RequestFinished()
                | Failure()
            ):
                if self._exchange is not None and self._exchange.request_id == event.request_id:
                    await self._answer(self._exchange, event)

    async def on_composer_ready(self, event: Composer.Ready) -> None:
        """Send a message, if there is someone to answer."""
        event.stop()
        if self._comes_back:
            # Waiting here would clear the editor of what is typed until then.
            self.notify("The chat is being brought back; send in a moment.", markup=False)
            return
        async with self._turn:
            obstacle = self._obstacle()
            if obstacle:
                self.notify(obstacle, markup=False)
                return
            self.composer.clear()
            question, answer = await self.transcript.add_exchange(
                event.typed, event.attachments, thinking_shown=self._thinking_shown
            )
            if self._model_wait.on_its_way:
                self._wait(Waiting(event, question, answer))
            else:
                self._ask(event, answer)

    async def on_failure_card_chatml_wanted(self, event: FailureCard.ChatmlWanted) -> None:
        """Ask once more, with ChatML from now on."""
        event.stop()
        await self.answer_with_chatml()

    async def answer_with_chatml(self) -> None:
        """Ask the unanswered message once more, and use ChatML until another model is loaded."""
        async with self._turn:
            message, self._unanswered = self._unanswered, None
            if message is None or self.busy:
                return
            self._force_chatml = True
            await self.transcript.add(Notice(CHATML_NOTE))
            answer = AnswerTurn(thinking_shown=self._thinking_shown)
            await self.transcript.add(answer)
            self._ask(message, answer)
        self.composer.focus_editor()

    def _obstacle(self) -> str:
        """Say what stands in the way of sending, nothing when nothing does."""
        if self.busy:
            return f"An answer is being written; {find_key('stop').caption} stops it."
        if self._waiting is not None:
            return f"A message waits already; {find_key('stop').caption} takes it back."
        if self._model_wait.on_its_way:
            return ""
        if self._state.lost is not None:
            return f"The GPU is lost; {find_key('reload').caption} {STARTS_AGAIN}."
        if self._state.model is None:
            again, other = find_key("reload").caption, find_key("model").caption
            known = self._state.may_load_again
            keys = f"{again} loads it again, {other} another" if known else f"{other} chooses one"
            return f"No model is loaded; {keys}."
        return ""

    def _wait(self, waiting: Waiting) -> None:
        self._waiting = waiting
        waiting.answer.status.await_model()
        self._show_what_waits()

    async def _waited(self, *, ready: bool) -> None:
        """Send the message that waits, or give it back when there is no model after all."""
        waiting = self._waiting
        if waiting is None:
            return
        if ready:
            self._waiting = None
            waiting.answer.status.asked()
            self._ask(waiting.message, waiting.answer)
        else:
            await self._take_back(waiting)

    async def _take_back(self, waiting: Waiting) -> None:
        """Give a message that was not sent back to the editor, as if it had never left it."""
        self._waiting = None
        await self.transcript.take_out(waiting.question, waiting.answer)
        self.composer.give_back(waiting.message)
        self._show_what_waits()

    def _show_what_waits(self) -> None:
        self.show(self._state)
        self.post_message(self.StopChanged())

    def _ask(self, message: Composer.Ready, answer: AnswerTurn) -> None:
        self._unanswered = None
        self._asked += 1
        self._exchange = Exchange(self._asked, answer, message)
        command = Generate(
            self._exchange.request_id,
            messages=self._conversation.ask(message.content, self.remembered),
            max_tokens=self._max_tokens,
            sampling=self.sampling,
            force_chatml=self._force_chatml,
        )
        self.post_message(TellEngine(command))

    async def _answer(self, exchange: Exchange, event: AnswerEvent) -> None:
        answer = exchange.answer
        match event:
            case RequestStarted():
                await answer.started(event, follow_up=self._conversation.follow_up)
            case PromptProgress():
                answer.reading(event)
            case TextDelta():
                await answer.feed(event.channel, event.text)
            case DecodeProgress():
                answer.writing(event)
            case RequestFinished():
                await answer.finish(event)
                self._close_exchange(exchange, event.text, event.reasoning)
            case Failure():
                await answer.fail(event)
                if event.offers_chatml:
                    self._unanswered = exchange.message
                self._close_exchange(exchange, answer.text, answer.reasoning)

    def _close_exchange(self, exchange: Exchange, text: str, reasoning: str) -> None:
        kept = self._end_exchange(text, reasoning)
        if not kept and self._unanswered is None:
            self.composer.put_back(exchange.message)

    def _end_exchange(self, text: str, reasoning: str) -> bool:
        """Return whether the exchange is part of the chat from now on."""
        self._exchange = None
        return self._conversation.answered(text, reasoning)

    async def _model_loaded(self, event: ModelLoaded) -> None:
        self._force_chatml = False
        self.app.clear_notifications()
        before = self._waiting.question if self._waiting is not None else None
        if self.transcript.first not in (None, before) and not self.busy:
            # Nobody has asked those that were loaded since the last answer.
            await self.transcript.take_back_remarks(
                lambda said: said.endswith(ANSWERS_NOW) or said in event.warnings, before
            )
            await self.transcript.add(Notice(event.name + ANSWERS_NOW), before)
        for warning in event.warnings:
            await self.transcript.add(Notice(warning), before)

    async def _load_cancelled(self, event: LoadCancelled) -> None:
        self._model_wait.cancelled()
        if self._waiting is not None and not self._model_wait.on_its_way:
            await self._take_back(self._waiting)
        if not self.transcript.empty:
            again, other = find_key("reload").caption, find_key("model").caption
            words = f"Loading {event.file} was cancelled: {again} loads it, {other} another."
            await self.transcript.add(Notice(words))

    async def _device_lost(self, event: DeviceLost) -> None:
        """Keep what was said, and say in its place why there is no more.

        What is being written meanwhile is not mixed with a message that comes back.
        """
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            await self.transcript.take_out(waiting.question, waiting.answer)
            self.composer.hold(waiting.message)
            self._show_what_waits()
        if self._exchange is None:
            return
        exchange, answer = self._exchange, self._exchange.answer
        again = f"{find_key('reload').caption} {STARTS_AGAIN}."
        await answer.fail(
            Failure(exchange.request_id, "GPU lost", event.why, again, ExitCode.NO_GPU)
        )
        if not self._end_exchange(answer.text, answer.reasoning):
            self.composer.hold(exchange.message)

    async def _engine_stopped(self) -> None:
        if self._exchange is not None:
            await self._exchange.answer.close()
            self._exchange = None
        if self._waiting is not None:
            await self._take_back(self._waiting)
        await self.transcript.add(Notice("The engine has stopped; start StrataDesk again."))


def without_announcement(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return `turns` but for a model, loaded since the last answer, that answers no more."""
    said = [at for at, turn in enumerate(turns) if turn.said is not None or turn.answered]
    last = said[-1] if said else -1
    return tuple(
        turn
        for at, turn in enumerate(turns)
        if at <= last or turn.remark is None or not turn.remark.endswith(ANSWERS_NOW)
    )
