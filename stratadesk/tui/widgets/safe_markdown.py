"""Markdown from a model: streamed in, and never trusted."""

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.content import Content
from textual.highlight import highlight
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownFence, MarkdownStream

from stratadesk.tui.sanitise import safe_text
from stratadesk.tui.widgets.growing_list import GROWING_LISTS

HIGHLIGHT_LIMIT = 4_000
LINK_SCHEMES = ("http://", "https://")


class PlainFence(MarkdownFence):
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


class SafeMarkdown(Markdown):
    """A Markdown document that grows by `feed`; `close` must follow.

    Raw HTML is shown as the text it is, line ends are kept, and only web links open.
    """

    BLOCKS = Markdown.BLOCKS | {"fence": PlainFence, "code_block": PlainFence} | GROWING_LISTS

    def __init__(self) -> None:
        super().__init__(parser_factory=_parser, open_links=False)
        self._stream: MarkdownStream | None = None

    async def feed(self, text: str) -> None:
        """Append `text`; pieces that come faster than they can be drawn are joined."""
        text = safe_text(text)
        if not text:
            # A stream that is stopped before its first write is cancelled, and us with it.
            return
        if self._stream is None:
            self._stream = Markdown.get_stream(self)
        await self._stream.write(text)

    async def close(self) -> None:
        """Draw what is still waiting and end the stream; harmless when there is none."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.stop()

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
