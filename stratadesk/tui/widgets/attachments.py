"""Pasted text that is too long, or too wild, for an editor: kept whole, shown as one line."""

from collections.abc import Iterable
from dataclasses import dataclass

from textual.widgets import Static

from stratadesk.tui.figures import plural
from stratadesk.tui.sanitise import has_controls
from stratadesk.units import format_bytes

PASTE_CHARACTERS = 4_000
PASTE_LINES = 40
DROP_HINT = "  Backspace in an empty message takes one back"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A pasted text, exactly as pasted but for line ends, which are line feeds."""

    text: str

    @property
    def caption(self) -> str:
        """What it is and how big."""
        size = format_bytes(len(self.text.encode("utf-8", "surrogatepass")))
        lines = self.text.count("\n") + (not self.text.endswith("\n"))
        return f"pasted text · {size} · {plural(lines, 'line')}"


def normal_line_ends(text: str) -> str:
    """Return `text` with line feeds for the line ends that terminals and Windows send."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def wants_attaching(text: str) -> bool:
    """Whether a pasted text should not go into the editor."""
    too_long = len(text) > PASTE_CHARACTERS or text.count("\n") >= PASTE_LINES
    return too_long or has_controls(text)


def attached(pastes: Iterable[str]) -> tuple[Attachment, ...]:
    """Make attachments of pasted texts."""
    return tuple(Attachment(text) for text in pastes)


def compose_message(text: str, attachments: tuple[Attachment, ...]) -> str:
    """Join what was typed and what was attached, a blank line between."""
    return "\n\n".join(filter(None, (text, *(attachment.text for attachment in attachments))))


class AttachmentBar(Static):
    """A line for each attachment of the message being written."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._attachments: tuple[Attachment, ...] = ()

    def on_mount(self) -> None:
        """Be hidden while empty."""
        self.attachments = ()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """What is attached, in order."""
        return self._attachments

    @attachments.setter
    def attachments(self, attachments: tuple[Attachment, ...]) -> None:
        self._attachments = attachments
        self.display = bool(attachments)
        captions = [f"▸ {attachment.caption}" for attachment in attachments]
        self.update("\n".join([*captions, DROP_HINT]))

    def add(self, text: str) -> None:
        """Attach `text`."""
        self.attachments = (*self._attachments, Attachment(text))

    def remove_last(self) -> None:
        """Drop the latest attachment, if there is one."""
        self.attachments = self._attachments[:-1]
