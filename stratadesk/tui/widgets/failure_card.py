"""A failure as the user sees it: title, sentence, remedy, and a way on where there is one."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Button, Static

from stratadesk.engine.events import Failure
from stratadesk.keys import find_key
from stratadesk.tui.sanitise import safe_text

HOST = "--device host"
"""The flag of a remedy that the settings can follow: "use" it. Others name it for a plan."""

AGAIN = "Load the model again"
"""A remedy that a key follows, model or none."""

START_AGAIN = "Start StrataDesk again"
STARTS_AGAIN = "starts StrataDesk again and keeps the chat"
"""What the same key does instead after a loss of the card, behind its name."""


class FailureCard(Vertical):
    """Stands in the chat where the answer would have been; `times` is how often it happened."""

    class ChatmlWanted(Message):
        """The user wants the answer with ChatML instead of the model's template."""

    def __init__(self, failure: Failure, times: int = 1) -> None:
        super().__init__()
        self.failure = failure
        self.times = times
        self._title = Static(self._title_words, classes="title", markup=False)

    def compose(self) -> ComposeResult:
        """Make the three lines, and the button if the failure offers ChatML."""
        failure = self.failure
        yield self._title
        yield Static(safe_text(failure.sentence), markup=False)
        if failure.remedy:
            yield Static(safe_text(remedy_here(failure)), classes="remedy", markup=False)
        if failure.offers_chatml:
            yield Button("Answer with ChatML", id="answer-with-chatml", compact=True)

    def again(self) -> None:
        """Say that the same has happened once more."""
        self.times += 1
        self._title.update(self._title_words)

    @property
    def _title_words(self) -> str:
        again = {1: "", 2: " · again"}.get(self.times, f" · again, {self.times:,} times")
        return f"✗ {safe_text(self.failure.title)}{again}"

    def on_mount(self) -> None:
        """Let Enter take the way on."""
        for button in self.query(Button):
            button.focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Pass the wish on, once."""
        event.stop()
        event.button.disabled = True
        self.post_message(self.ChatmlWanted())


def remedy_here(failure: Failure) -> str:
    """Return the remedy in terms of keys: that which loads again, and how to get to the CPU."""
    reload = find_key("reload").caption
    remedy = failure.remedy.replace(AGAIN, f"{reload} loads the model again")
    remedy = remedy.replace(START_AGAIN, f"{reload} {STARTS_AGAIN}")
    if f"use {HOST}" not in remedy.lower():
        return remedy
    settings, device = find_key("settings").caption, find_key("set_device").caption
    way = f"{settings}, then {device}, chooses the CPU (host)"
    return f"{remedy}\n{way}; {reload} loads the model there."
