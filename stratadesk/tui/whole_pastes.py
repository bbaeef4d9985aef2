"""Pastes as one piece, whatever is in them.

Textual's parser looks for escape sequences within a pasted text as well. What it does not know
there, such as a colour, it hands on as up to 32 typed keys, Enter among them: a coloured log sends
messages, and holds the screen up for minutes. So the text between the two marks of a bracketed
paste is taken out of the stream before that parser sees it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Paste
from textual.message import Message

READER = "textual.drivers.win32" if sys.platform == "win32" else "textual.drivers.linux_driver"
"""The module that makes a parser for what the terminal sends."""


class WholePasteParser(XTermParser):
    """Gives each bracketed paste as one `Paste`, with all its characters but NUL.

    Everything else is left to Textual's parser, the marks themselves included: it is in the middle
    of no sequence afterwards.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pasting = False
        self._pieces: list[str] = []
        self._last = ""

    def feed(self, data: str) -> Iterable[Message]:
        """Parse what the terminal has sent; empty data end the stream."""
        if not data:
            yield from super().feed(data)
        while data:
            if self._pasting:
                ended, data = self._collect(data)
                if ended:
                    yield from self._paste()
            else:
                keys, data = self._up_to_paste(data)
                yield from super().feed(keys)

    def _up_to_paste(self, data: str) -> tuple[str, str]:
        """Cut `data` behind the first mark of a paste, of which a part may have come before."""
        known = self._last + data
        before, mark, rest = known.partition(BRACKETED_PASTE_START)
        self._pasting = bool(mark)
        self._last = "" if mark else before[1 - len(BRACKETED_PASTE_START) :]
        return data[: len(data) - len(rest)], rest

    def _collect(self, data: str) -> tuple[bool, str]:
        """Add `data` to the paste; return whether the mark at its end came, and what follows that.

        The mark may come in parts: as many characters as could be one are looked at again.
        """
        text, mark, rest = (self._last + data).partition(BRACKETED_PASTE_END)
        self._pasting = not mark
        keep = len(text) if mark else max(len(text) + 1 - len(BRACKETED_PASTE_END), 0)
        self._pieces.append(text[:keep])
        self._last = text[keep:]
        return bool(mark), rest

    def _paste(self) -> Iterator[Message]:
        """Let the parser see the mark, and put the text in the place of the empty paste it makes.

        There is none if the first mark came in parts so late that it was taken for keys.
        """
        text = "".join(self._pieces).replace("\0", "")
        self._pieces.clear()
        for message in super().feed(BRACKETED_PASTE_END):
            if not isinstance(message, Paste):
                yield message
        yield Paste(text)


@contextmanager
def whole_pastes() -> Iterator[None]:
    """Have apps that begin to run in the `with` block read the terminal with `WholePasteParser`.

    Textual's drivers make their parser themselves and offer no choice of it.
    """
    reader = import_module(READER)
    usual = reader.XTermParser
    vars(reader)["XTermParser"] = WholePasteParser
    try:
        yield
    finally:
        vars(reader)["XTermParser"] = usual
