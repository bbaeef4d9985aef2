"""The list of keys, made from the one table."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Static

from stratadesk.keys import KEYS, Key
from stratadesk.tui.bindings import bind
from stratadesk.tui.layout import ROW_CLASSES
from stratadesk.tui.widgets.told_scroll import ToldScroll


class HelpScreen(ModalScreen[None]):
    """Lies over any screen; Esc or F1 closes it."""

    VERTICAL_BREAKPOINTS = ROW_CLASSES
    BINDINGS: ClassVar[list[BindingType]] = [bind("stop", "close"), bind("help", "close")]

    def compose(self) -> ComposeResult:
        """Make a row for each key."""
        with KeyList(id="help"):
            for key in KEYS:
                yield KeyRow(key)

    def action_close(self) -> None:
        """Go back."""
        self.dismiss()


class KeyList(ToldScroll):
    """All keys, under their title."""

    BORDER_TITLE = "Keys"


class KeyRow(Horizontal):
    """A key, its label, and what it does."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key

    def compose(self) -> ComposeResult:
        """Make the three columns."""
        yield Static(self._key.caption, classes="key", markup=False)
        yield Static(self._key.label, classes="label", markup=False)
        yield Static(self._key.tooltip, classes="tooltip", markup=False)
