"""Markdown from a model: streamed in, and never trusted."""

from collections.abc import Iterable
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.highlight import highlight
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownParagraph
from textual.widgets.markdown import (
    MarkdownBlock,
    MarkdownFence,
    MarkdownStream,
)

from stratadesk.tui.sanitise import safe_text
from stratadesk.tui.widgets.bare import Bare, Remeasured, Stacked
from stratadesk.tui.widgets.folding import Folding, Window
from stratadesk.tui.widgets.growing_list import GROWING_LISTS, GrowingList
from stratadesk.tui.widgets.quiet_blocks import QUIET_BLOCKS, CodeLabel, Streamed

HIGHLIGHT_LIMIT = 4_000
LINK_SCHEMES = ("http://", "https://")


class PlainFence(Remeasured, MarkdownFence):
    """A code block that never guesses its language, and colours no more than it can afford.

    Guessing loads every lexer there is, and colouring starts over with each piece that comes.
    """

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Return `code` coloured if its language is named and it is short enough."""
        words = language.split()
        if not words or len(code) > HIGHLIGHT_LIMIT:
            return Content(code.expandtabs(4))
        return highlight(code, language=words[0])

    def compose(self) -> ComposeResult:
        """Make the text."""
        yield CodeLabel(self._highlighted_code, id="code-content", expand=True)


class StreamedParagraph(Streamed, MarkdownParagraph):
    """A paragraph."""


OWN_BLOCKS: Final[dict[str, type[MarkdownBlock]]] = {
    "paragraph_open": StreamedParagraph,
    "fence": PlainFence,
    "code_block": PlainFence,
}


class SafeMarkdown(Bare, Remeasured, Stacked, Markdown):
    """A Markdown document that grows by `feed`; `close` must follow.

    Raw HTML is shown as the text it is, line ends are kept, and only web links open.
    """

    BLOCKS = Markdown.BLOCKS | OWN_BLOCKS | QUIET_BLOCKS | GROWING_LISTS

    def __init__(self) -> None:
        parser = _parser()
        super().__init__(parser_factory=lambda: parser, open_links=False)
        self._stream: MarkdownStream | None = None
        self._folding = Folding(self, MarkdownBlock)
        self._folded_width = 0

    def on_mount(self) -> None:
        """Fold after each layout, and unfold what comes into view."""
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out, immediate=True)
        view = self._view
        if view is not None:
            self.watch(view, "scroll_y", self._scrolled, init=False)

    async def feed(self, text: str) -> None:
        """Append `text`; pieces that come faster than they can be drawn are joined."""
        text = safe_text(text)
        if not text:
            # A stream that is stopped before its first write is cancelled, and us with it.
            return
        self._fold(hide=True)
        if self._stream is None:
            self._stream = Markdown.get_stream(self)
        await self._stream.write(text)

    async def close(self) -> None:
        """Draw what is still waiting and end the stream; harmless when there is none."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.stop()

    @property
    def _view(self) -> ScrollableContainer | None:
        """What this document is scrolled in."""
        views = (node for node in self.ancestors if isinstance(node, ScrollableContainer))
        return next(views, None)

    def _laid_out(self, _screen: object) -> None:
        if not self.size:
            return
        if self.size.width != self._folded_width:
            self._folded_width = self.size.width
            self._folding.forget()
            for growing in self._lists():
                growing.folding.forget()
            return
        self._folding.measure()
        for growing in self._lists():
            growing.folding.measure()
        self._scrolled()

    def _scrolled(self) -> None:
        # The next piece of text brings a layout of its own, in which blocks are hidden for nothing.
        self._fold(hide=self._stream is None)

    def _fold(self, *, hide: bool) -> None:
        """Show the blocks near the view again; hide those far from it where that is asked."""
        view = self._view
        if view is None or not self.size:
            return
        top = view.region.y - self.content_region.y
        window = Window(top, top + view.size.height)
        hide = hide and not self.screen.selections
        self._folding.adjust(window, hide=hide)
        for growing in self._lists():
            place = self._folding.place_of(growing)
            if place is not None:
                growing.folding.adjust(window.within(place), hide=hide)

    def _lists(self) -> list[GrowingList]:
        return [
            child for child in self.children if isinstance(child, GrowingList) and child.display
        ]

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Open web addresses; say so for anything else."""
        event.stop()
        if event.href.startswith(LINK_SCHEMES):
            self.app.open_url(event.href)
        else:
            self.app.notify("Only web addresses are opened.", markup=False)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.push("keep_line_ends", _keep_line_ends)
    return parser


def _keep_line_ends(state: StateCore) -> None:
    for token in _inline_children(state):
        if token.type == "softbreak":
            token.type = "hardbreak"


def _inline_children(state: StateCore) -> Iterable[Token]:
    for block in state.tokens:
        yield from block.children or ()
