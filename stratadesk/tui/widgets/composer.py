"""The lower edge of the chat: attachments and the editor."""

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from stratadesk.tui.handover import Written
from stratadesk.tui.widgets.attachments import (
    Attachment,
    AttachmentBar,
    attached,
    compose_message,
)
from stratadesk.tui.widgets.prompt_input import PromptInput


class Composer(Vertical):
    """Collects a message and posts it; an empty one is not posted."""

    @dataclass
    class Ready(Message):
        """A message to send: what was typed and what was attached."""

        typed: str
        attachments: tuple[Attachment, ...]

        @classmethod
        def of(cls, written: Written) -> "Composer.Ready":
            """Make a message of what another run of the program had of it."""
            return cls(written.typed, attached(written.pastes))

        def record(self) -> Written:
            """Return it for another run of the program."""
            return Written(self.typed, tuple(each.text for each in self.attachments))

        @property
        def content(self) -> str:
            """The message as the model gets it."""
            return compose_message(self.typed, self.attachments)

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Composer.Ready] = []

    def compose(self) -> ComposeResult:
        """Make the attachment lines and the editor."""
        yield AttachmentBar()
        yield PromptInput()

    def on_prompt_input_sent(self, event: PromptInput.Sent) -> None:
        """Post the message; the editor keeps it until `clear`."""
        event.stop()
        attachments = self.query_one(AttachmentBar).attachments
        if event.text.strip() or attachments:
            self.post_message(self.Ready(event.text.strip("\n"), attachments))

    def on_prompt_input_attached(self, event: PromptInput.Attached) -> None:
        """Keep a long paste beside the editor."""
        event.stop()
        self.query_one(AttachmentBar).add(event.text)

    def on_prompt_input_attachment_dropped(self, event: PromptInput.AttachmentDropped) -> None:
        """Drop the latest attachment."""
        event.stop()
        self.query_one(AttachmentBar).remove_last()

    def clear(self) -> None:
        """Be empty: the message is on its way."""
        self.query_one(PromptInput).text = ""
        self.query_one(AttachmentBar).attachments = ()

    def put_back(self, message: Ready) -> None:
        """Offer a message that got no answer for another try, unless another is begun."""
        prompt, bar = self.query_one(PromptInput), self.query_one(AttachmentBar)
        if not (prompt.text or bar.attachments):
            prompt.text = message.typed
            prompt.move_cursor(prompt.document.end)
            bar.attachments = message.attachments

    def give_back(self, message: Ready) -> None:
        """Take a message that was not sent; what was begun since then follows it."""
        prompt, bar = self.query_one(PromptInput), self.query_one(AttachmentBar)
        prompt.text = "\n".join(filter(None, (message.typed, prompt.text)))
        prompt.move_cursor(prompt.document.end)
        bar.attachments = (*message.attachments, *bar.attachments)

    def hold(self, *messages: Ready) -> None:
        """Keep messages that got no answer apart from what is being written.

        In the empty editor, the key for going up brings the latest one back.
        """
        self._held += messages
        self.query_one(PromptInput).offer_recall(bool(self._held))

    def on_prompt_input_recalled(self, event: PromptInput.Recalled) -> None:
        """Bring back the latest message that is held, unless another one is begun."""
        event.stop()
        if self._held and self.is_empty:
            self.put_back(self._held.pop())
            self.hold()

    def record(self) -> tuple[Written, tuple[Written, ...]]:
        """Return what is being written, and what is held."""
        prompt, bar = self.query_one(PromptInput), self.query_one(AttachmentBar)
        draft = self.Ready(prompt.text, bar.attachments)
        return draft.record(), tuple(message.record() for message in self._held)

    def restore(self, draft: Written, held: tuple[Written, ...]) -> None:
        """Have what another run of the program had here; what was typed since then follows it."""
        self.give_back(self.Ready.of(draft))
        self.hold(*map(self.Ready.of, held))

    def type_text(self, text: str) -> None:
        """Insert `text` as if it was typed into the editor, and give it the focus."""
        prompt = self.query_one(PromptInput)
        prompt.focus()
        prompt.insert(text)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is typed and nothing attached."""
        return not (self.query_one(PromptInput).text or self.query_one(AttachmentBar).attachments)

    def ask(self, text: str) -> None:
        """Send `text` as if it was typed."""
        self.post_message(self.Ready(text, ()))

    def focus_editor(self) -> None:
        """Give the editor the focus."""
        self.query_one(PromptInput).focus()
