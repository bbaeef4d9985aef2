"""From the bytes of generated tokens to text that is safe to show.

Bytes wait until they make whole characters. Thinking is told from the answer by its markers,
and a stop string ends the answer before any of it is shown. What is shown does not depend on
where tokens begin and end: all pieces joined are the text of a request that does not stream.

Markers. The opening marker counts only where nothing but white space of the answer precedes
it: a model that explains the tag in the middle of its answer means the letters. The closing
marker counts in thinking only. Line breaks that touch a marker, and white space before an
opening one, belong to the markers and are dropped with them: chat formats put them there.

Stop strings are looked for in the answer alone, not across channels: they bound what the user
asked for, and a thought that mentions one would otherwise leave no answer. (llama.cpp looks
for them in all generated text.) The earliest beginning of a stop string counts.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratadesk.engine.events import Channel

THINKING_MARKERS = ("<think>", "</think>")

_LINE_BREAKS = "\r\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text of one channel."""

    channel: Channel
    text: str


class _Mark(NamedTuple):
    """A marker or stop string in pending text; `text` is empty where it is still incomplete."""

    start: int
    text: str = ""
    stops: bool = False


class TextStream:
    """Turns the bytes of one answer into pieces of text.

    `stop` are the stop strings, of which empty ones are ignored. `thinking_markers` open and
    close thinking; None leaves all text in the answer. `starts_thinking` says that the prompt
    ended inside thinking. `stopped` is the stop string found, None until then; after it nothing
    is shown any more.
    """

    def __init__(
        self,
        stop: Sequence[str] = (),
        thinking_markers: tuple[str, str] | None = THINKING_MARKERS,
        *,
        starts_thinking: bool = False,
    ) -> None:
        self.stopped: str | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = tuple((text, True) for text in stop if text)
        self._open, self._close = thinking_markers or ("", "")
        self._thinking = starts_thinking and thinking_markers is not None
        self._after_marker = self._thinking
        self._answer_begun = thinking_markers is None
        self._pending = ""
        self._held_space = ""
        self._pieces: list[Piece] = []

    @property
    def channel(self) -> Channel:
        """Where text is now: what the last token ended in."""
        return Channel.THINKING if self._thinking else Channel.ANSWER

    def push(self, data: bytes) -> list[Piece]:
        """Take the bytes of a token and return the text that became safe to show."""
        return self._advance(self._decoder.decode(data), final=False)

    def finish(self) -> list[Piece]:
        """Return all text that was still held back; an unfinished character becomes U+FFFD."""
        return self._advance(self._decoder.decode(b"", final=True), final=True)

    def _advance(self, text: str, *, final: bool) -> list[Piece]:
        if self.stopped is not None:
            return []
        self._pending += text
        while self.stopped is None and self._step(final=final):
            pass
        if final:
            self._show_held_space()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _step(self, *, final: bool) -> bool:
        """Deal with pending text up to and with the next mark; False when there is none."""
        if self._after_marker:
            self._pending = self._pending.lstrip(_LINE_BREAKS)
            self._after_marker = not self._pending
        mark = self._next_mark(final=final)
        self._show(self._pending[: mark.start])
        self._pending = self._pending[mark.start + len(mark.text) :]
        if mark.stops:
            self._show_held_space()
            self.stopped = mark.text
        elif mark.text:
            self._switch()
        return bool(mark.text)

    def _next_mark(self, *, final: bool) -> _Mark:
        """Return the first mark in the pending text, else one that is empty at its end."""
        pending, begun = self._pending, self._answer_begun
        for start, char in enumerate(pending):
            for text, stops in self._marks(begun=begun):
                if pending.startswith(text, start):
                    return _Mark(start, text, stops)
                left = len(pending) - start
                if not final and left < len(text) and text.startswith(pending[start:]):
                    return _Mark(start)
            begun = begun or not char.isspace()
        return _Mark(len(pending))

    def _marks(self, *, begun: bool) -> tuple[tuple[str, bool], ...]:
        """Return what may come, by precedence, with whether it stops the answer."""
        if self._thinking:
            return ((self._close, False),)
        return self._stops if begun else ((self._open, False), *self._stops)

    def _switch(self) -> None:
        self._thinking = not self._thinking
        self._after_marker = True
        self._held_space = ""

    def _show(self, text: str) -> None:
        """Show `text` except the white space in it that a marker may still claim."""
        text = self._held_space + text
        if self._thinking:
            shown = text.rstrip(_LINE_BREAKS)
        else:
            self._answer_begun = self._answer_begun or bool(text.strip())
            shown = text if self._answer_begun else ""
        self._held_space = text[len(shown) :]
        self._emit(shown)

    def _show_held_space(self) -> None:
        self._emit(self._held_space)
        self._held_space = ""

    def _emit(self, text: str) -> None:
        if not text:
            return
        if self._pieces and self._pieces[-1].channel is self.channel:
            text = self._pieces.pop().text + text
        self._pieces.append(Piece(self.channel, text))
