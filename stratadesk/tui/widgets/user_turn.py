"""What the user said."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from stratadesk.tui.handover import Written
from stratadesk.tui.sanitise import safe_text
from stratadesk.tui.widgets.attachments import Attachment

SHOWN_CHARACTERS = 4_000


class UserTurn(Vertical):
    """The message as plain text, and a line for each attachment."""

    def __init__(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        super().__init__()
        self._text = text
        self._attachments = attachments

    def record(self) -> Written:
        """Return what was said."""
        return Written(self._text, tuple(each.text for each in self._attachments))

    def compose(self) -> ComposeResult:
        """Make the heading, the text and the attachment lines."""
        yield Static("You", classes="speaker", markup=False)
        if self._text:
            yield Static(shown(self._text), classes="said", markup=False)
        for attachment in self._attachments:
            yield Static(f"▸ {attachment.caption}", classes="attached", markup=False)


def shown(text: str) -> str:
    """Return `text` as it is drawn: cleaned, and cut when very long."""
    cut = text[:SHOWN_CHARACTERS]
    left_out = len(text) - len(cut)
    return safe_text(cut) + (f"\n… {left_out:,} more characters" if left_out else "")
