"""What the model thinks before it answers, folded to one line unless asked for."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from stratadesk.tui.figures import duration, plural
from stratadesk.tui.widgets.safe_markdown import SafeMarkdown


class ThinkingHeader(Static, can_focus=True):
    """The one line; Enter, space or a click folds and unfolds."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "fold", "Show or hide this thinking", show=False)
    ]

    def action_fold(self) -> None:
        """Fold or unfold."""
        block = self.parent
        if isinstance(block, ThinkingBlock):
            block.unfolded = not block.unfolded

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold."""
        event.stop()
        self.action_fold()


class ThinkingBlock(Vertical):
    """Thinking that grows by `feed`. While folded nothing of it is laid out, only kept."""

    def __init__(self, *, unfolded: bool) -> None:
        super().__init__()
        self._unfolded = unfolded
        self._waiting: list[str] = []
        self._seconds = 0.0
        self._tokens = 0
        self._thinks = True
        self._header = ThinkingHeader("", markup=False)
        self._markdown = SafeMarkdown()

    def compose(self) -> ComposeResult:
        """Make the line and the folded text."""
        yield self._header
        yield self._markdown

    def on_mount(self) -> None:
        """Draw the line."""
        self._draw()

    @property
    def unfolded(self) -> bool:
        """Whether the text is shown."""
        return self._unfolded

    @unfolded.setter
    def unfolded(self, unfolded: bool) -> None:
        self._unfolded = unfolded
        self._draw()
        if unfolded:
            self.call_later(self._pour)

    async def feed(self, text: str) -> None:
        """Append `text`."""
        self._waiting.append(text)
        if self._unfolded:
            await self._pour()

    def measure(self, seconds: float, tokens: int) -> None:
        """Tell how long (seconds) and how much (tokens) was thought; counts while it grows."""
        if tokens > self._tokens:
            self._seconds, self._tokens = seconds, tokens
            self._draw()

    @property
    def measured(self) -> tuple[float, int]:
        """How long (seconds) and how much (tokens) was thought."""
        return self._seconds, self._tokens

    async def close(self) -> None:
        """The thinking is over."""
        self._thinks = False
        self._draw()
        await self._markdown.close()

    async def _pour(self) -> None:
        text = "".join(self._waiting)
        self._waiting.clear()
        await self._markdown.feed(text)
        if not self._thinks:
            await self._markdown.close()

    def _draw(self) -> None:
        self._markdown.display = self._unfolded
        self.set_class(self._unfolded, "-unfolded")
        self._header.update(self._caption())

    def _caption(self) -> Content:
        mark = "▾" if self._unfolded else "▸"
        verb = "Thinking" if self._thinks else "Thought"
        if not self._tokens:
            return Content(f"{mark} {verb}")
        measure = f"for {duration(self._seconds)} · {plural(self._tokens, 'token')}"
        return Content(f"{mark} {verb} {measure}")
