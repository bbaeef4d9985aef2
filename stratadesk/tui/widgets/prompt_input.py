"""The editor for a message."""

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from stratadesk.keys import find_key
from stratadesk.tui.widgets.attachments import normal_line_ends, wants_attaching

PLACEHOLDER = "Ask something"
RECALL = "Up brings back the message that got no answer"


class PromptInput(TextArea):
    """Enter sends, Ctrl+J or a trailing backslash starts a new line, long pastes are attached."""

    @dataclass
    class Sent(Message):
        """The user wants the message sent."""

        text: str

    @dataclass
    class Attached(Message):
        """The user pasted something that does not belong into an editor."""

        text: str

    class AttachmentDropped(Message):
        """Backspace was pressed in the empty editor."""

    class Recalled(Message):
        """The key for going up was pressed in the empty editor."""

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=PLACEHOLDER,
            compact=True,
        )

    def on_key(self, event: events.Key) -> None:
        """Send or start a new line in the order of typing, which bindings would not keep."""
        actions = {
            find_key("send").key: self.action_send,
            find_key("newline").key: self.action_newline,
        }
        action = actions.get(event.key)
        if action is not None:
            event.prevent_default()
            event.stop()
            action()

    def action_send(self) -> None:
        """Send, or start a new line in place of a trailing backslash."""
        if self.text.endswith("\\") and self.cursor_location == self.document.end:
            self.action_delete_left()
            self.action_newline()
            return
        self.post_message(self.Sent(self.text))

    def action_newline(self) -> None:
        """Start a new line where the cursor is."""
        self.replace("\n", *self.selection)

    def action_delete_left(self) -> None:
        """Delete a character, or drop an attachment when there is none."""
        if not self.text:
            self.post_message(self.AttachmentDropped())
        super().action_delete_left()

    def action_cursor_up(self, select: bool = False) -> None:
        """Go a line up; in an empty editor, ask for what was written before."""
        if not self.text:
            self.post_message(self.Recalled())
        super().action_cursor_up(select)

    def offer_recall(self, offered: bool) -> None:
        """Say, while the editor is empty, that there is something to bring back."""
        self.placeholder = RECALL if offered else PLACEHOLDER

    async def on_paste(self, event: events.Paste) -> None:
        """Attach what is too long or holds control characters; the editor takes the rest."""
        event.text = normal_line_ends(event.text)
        if wants_attaching(event.text):
            event.prevent_default()
            event.stop()
            self.post_message(self.Attached(event.text))
