"""A failure as the user sees it: title, sentence, remedy, and a way on where there is one."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Button, Static

from stratadesk.engine.events import Failure
from stratadesk.tui.sanitise import safe_text


class FailureCard(Vertical):
    """Stands in the chat where the answer would have been."""

    class ChatmlWanted(Message):
        """The user wants the answer with ChatML instead of the model's template."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self._failure = failure

    def compose(self) -> ComposeResult:
        """Make the three lines, and the button if the failure offers ChatML."""
        failure = self._failure
        yield Static(f"✗ {safe_text(failure.title)}", classes="title", markup=False)
        yield Static(safe_text(failure.sentence), markup=False)
        if failure.remedy:
            yield Static(safe_text(failure.remedy), classes="remedy", markup=False)
        if failure.offers_chatml:
            yield Button("Answer with ChatML", id="answer-with-chatml", compact=True)

    def on_mount(self) -> None:
        """Let Enter take the way on."""
        for button in self.query(Button):
            button.focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Pass the wish on, once."""
        event.stop()
        event.button.disabled = True
        self.post_message(self.ChatmlWanted())
