"""The line mode's chat: asks for a line, sends it, writes what the engine says of it."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from stratadesk.cli.one_answer import AnsweringEngine
from stratadesk.cli.plain_facts import PlainFacts
from stratadesk.cli.plain_page import MODEL, THINKING, YOU, PlainPage
from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Cancel, Generate, LoadModel, SamplingSettings
from stratadesk.engine.events import (
    Channel,
    EngineStopped,
    Event,
    Failure,
    ModelLoaded,
    RequestFinished,
    TextDelta,
)
from stratadesk.errors import StrataDeskError
from stratadesk.exit_codes import ExitCode
from stratadesk.tui.conversation import Conversation
from stratadesk.tui.figures import plural
from stratadesk.tui.handover import ChatRecord, Written

POLL_S = 0.1
QUIT_WINDOW_S = 2.0
MORE = "...: "
RELOAD = "/reload loads the model again."
NO_MODEL = f"No model is loaded; {RELOAD}"
START_AGAIN = "/reload starts StrataDesk again and keeps the chat."
LOST = f"The GPU is lost; {START_AGAIN}"
STARTED_AGAIN = "[started again] the chat is kept; it goes on with {}."
NO_ANSWER = "[no answer] Ask again what the lost GPU left open: {}"
HELP = (
    "Write a message and press Enter; a backslash at the end of a line goes on in the next.",
    "/new starts an empty chat, /help shows this, /quit leaves.",
    "/reload loads the model again; with a lost GPU, it starts StrataDesk again.",
    "Ctrl+C stops the answer; twice, it leaves.",
)


class PlainChat:
    """Asks for lines, sends them to the engine, and writes what it says.

    A thread of its own writes, so that alarms are told while a question waits. `before` is the
    chat of another run of the program that goes on here. `hand_over` keeps this one for the next
    run; after `run`, `handed_over` is what it returned if the user wants the program to start once
    more.
    """

    def __init__(
        self,
        engine: AnsweringEngine,
        page: PlainPage,
        sampling: SamplingSettings,
        limit: int = 0,
        *,
        remembered: int | None = None,
        thinking_shown: bool = True,
        before: ChatRecord | None = None,
        hand_over: Callable[[ChatRecord], Path],
    ) -> None:
        self._engine = engine
        self._page = page
        self._sampling = sampling
        self._limit = limit
        self._remembered = remembered
        self._thinking_shown = thinking_shown
        self._facts = PlainFacts()
        self._before = before
        self._conversation = Conversation()
        self._unanswered: tuple[Written, ...] = ()
        self._hand_over = hand_over
        self.handed_over: Path | None = None
        self._request_ids = count(1)
        self._settled = threading.Event()
        self._awaited: int | None = None
        self._end: Event | None = None
        self._broken: OSError | None = None
        self._leaving = False
        self._model_gone = self._card_lost = self._chatting = False
        self._said = dict.fromkeys(Channel, "")
        self._interrupted_at = float("-inf")
        self._listener = threading.Thread(target=self._listen, name="plain", daemon=True)

    def run(self, load: LoadModel) -> int:
        """Load a model and chat until the user leaves; return the exit code.

        Raises:
            BrokenPipeError: nobody reads what is written.
        """
        patience_s = 0.0
        self._engine.start()
        self._listener.start()
        try:
            end = self._wait_for(load)
            if isinstance(end, Failure):
                return end.exit_code
            if isinstance(end, ModelLoaded):
                self._chat(load)
            patience_s = 10.0
            return ExitCode.OK
        finally:
            self._leaving = True
            self._engine.stop(timeout=patience_s)
            self._listener.join(patience_s)

    def _chat(self, load: LoadModel) -> None:
        goes_on = self._chatting = True
        if self._before is not None:
            self._conversation.restore(self._before.messages)
            self._page.line(STARTED_AGAIN.format(plural(len(self._before.messages), "message")))
            self._unanswered = self._before.unanswered
            for message in self._unanswered:
                self._page.line(NO_ANSWER.format(message.typed))
        while goes_on and (text := self._message()) is not None:
            word = text.strip()
            if word.startswith("/") and word[1:].isalpha():
                goes_on = self._obey(word, load)
            elif word and self._model_gone:
                self._page.line(LOST if self._card_lost else NO_MODEL)
            elif word:
                goes_on = self._answer(text) is not None

    def _obey(self, command: str, load: LoadModel) -> bool:
        """Do what a command says; return whether the chat goes on."""
        match command:
            case "/quit":
                return False
            case "/help":
                for words in HELP:
                    self._page.line(words)
            case "/new":
                self._conversation.clear()
                self._unanswered = ()
                self._page.line("[new chat]")
            case "/reload" if self._card_lost:
                return not self._hands_over()
            case "/reload":
                end = self._wait_for(load)
                if isinstance(end, Failure):
                    self._model_gone = True
                    if not self._card_lost:
                        self._page.line(RELOAD)
                return isinstance(end, ModelLoaded | Failure)
            case _:
                self._page.line(f"There is no command {command}; /help lists them.")
        return True

    def _hands_over(self) -> bool:
        """Keep the chat for another run of the program; its page stays as it is."""
        try:
            self.handed_over = self._hand_over(
                ChatRecord(self._conversation.messages, unanswered=self._unanswered)
            )
        except StrataDeskError as error:
            self._page.line(f"[failed] {error}")
            return False
        return True

    def _answer(self, text: str) -> Event | None:
        request = Generate(
            next(self._request_ids),
            messages=self._conversation.ask(text, self._remembered),
            max_tokens=self._limit,
            sampling=self._sampling,
        )
        self._said = dict.fromkeys(Channel, "")
        end = self._wait_for(request)
        answer, reasoning = self._said[Channel.ANSWER], self._said[Channel.THINKING]
        if isinstance(end, RequestFinished):
            answer, reasoning = end.text, end.reasoning
        kept = self._conversation.answered(answer, reasoning)
        self._unanswered = (Written(text),) if self._card_lost and not kept else ()
        return None if isinstance(end, EngineStopped) else end

    def _message(self) -> str | None:
        """Ask for a message; None when the user leaves."""
        parts: list[str] = []
        while True:
            try:
                line = self._page.ask(MORE if parts else YOU)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._leaves_now():
                    return None
                parts.clear()
                continue
            parts.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                return "\n".join(parts)

    def _wait_for(self, command: LoadModel | Generate) -> Event | None:
        """Send a command and wait for its end; None when the user leaves before.

        The first Ctrl+C stops an answer.
        """
        cancel = Cancel(command.request_id) if isinstance(command, Generate) else None
        self._awaited = None if cancel is None else cancel.request_id
        self._settled.clear()
        self._engine.send(command)
        while not self._settles():
            if cancel is not None:
                self._engine.send(cancel)
                cancel, self._interrupted_at = None, time.monotonic()
            elif self._leaves_now():
                return None
        if self._broken is not None:
            raise self._broken
        return self._end

    def _settles(self) -> bool:
        """Wait for the end of what was sent; False when Ctrl+C comes first."""
        try:
            while not self._settled.wait(POLL_S):
                pass
        except KeyboardInterrupt:
            return False
        return True

    def _leaves_now(self) -> bool:
        """Whether this Ctrl+C is the second one; says so if it is not."""
        again = time.monotonic() - self._interrupted_at < QUIT_WINDOW_S
        self._interrupted_at = time.monotonic()
        if not again:
            self._page.line("Press Ctrl+C again to quit.")
        return again

    def _is_left(self) -> bool:
        """Whether the chat is over; the other thread says so at any time."""
        return self._leaving

    def _listen(self) -> None:
        try:
            while not self._is_left():
                event = self._engine.events.get(timeout=POLL_S)
                if event is not None and not (self._is_left() and isinstance(event, EngineStopped)):
                    self._show(event)
        except OSError as error:
            self._broken = error
            self._settled.set()

    def _show(self, event: Event) -> None:
        for line in self._facts.lines(self._in_short(event)):
            self._page.line(line)
        if isinstance(event, TextDelta):
            self._said[event.channel] += event.text
        match event:
            case TextDelta(channel=Channel.THINKING):
                if self._thinking_shown:
                    self._page.say(THINKING, event.text)
            case TextDelta():
                self._page.say(MODEL, event.text)
            case ModelLoaded() | EngineStopped():
                self._model_gone = self._card_lost = False
                self._settle(event)
            case DeviceLost():
                self._model_gone = self._card_lost = True
                if self._chatting:
                    self._page.line(START_AGAIN)
            case RequestFinished() | Failure() if event.request_id == self._awaited:
                self._settle(event)

    def _in_short(self, event: Event) -> Event:
        """Leave out of a failure what to do where that was told with the loss."""
        told = self._card_lost and self._chatting
        return replace(event, remedy="") if told and isinstance(event, Failure) else event

    def _settle(self, event: Event) -> None:
        self._end = event
        self._settled.set()
