"""A coloured log that is pasted must not come as thousands of typed keys, Enter among them."""

import sys
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key, Paste

from stratadesk.tui.whole_pastes import WholePasteParser

LOG = "\x1b[31merror\x1b[0m: \x1b]8;;http://x\x07a link\x1b]8;;\x07\r" * 3
HOSTILE = st.text(st.sampled_from("\x1b[]20017~;m\r\nab\0"), max_size=40)


def pasted(text: str) -> str:
    """What the terminal sends for a paste."""
    return f"{BRACKETED_PASTE_START}{text}{BRACKETED_PASTE_END}"


def read(pieces: Sequence[str], parser: XTermParser | None = None) -> list[tuple[str, str]]:
    """What the parser makes of what comes piece by piece."""
    parser = WholePasteParser() if parser is None else parser
    messages = [message for piece in pieces if piece for message in parser.feed(piece)]
    named: list[tuple[str, str]] = []
    for message in messages:
        assert isinstance(message, (Key, Paste))
        named.append(("key", message.key) if isinstance(message, Key) else ("paste", message.text))
    return named


def test_textual_alone_types_what_is_pasted() -> None:
    kinds = [kind for kind, _ in read([pasted(LOG)], XTermParser())]
    assert kinds.count("key") > 50, "if this fails, the parser here is of no use any more"


def test_a_paste_with_escape_sequences_is_one_piece_and_keys_around_it_stay_keys() -> None:
    events = read([f"a{pasted(LOG)}\x1b[A{pasted('b')}c"])
    assert events == [("key", "a"), ("paste", LOG), ("key", "up"), ("paste", "b"), ("key", "c")]


@given(text=HOSTILE, cuts=st.lists(st.integers(0, 70), max_size=6))
def test_wherever_the_stream_is_cut_the_same_is_read(text: str, cuts: list[int]) -> None:
    assume(BRACKETED_PASTE_END not in text)
    stream = f"x{pasted(text)}y"
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert read(pieces) == [("key", "x"), ("paste", text.replace("\0", "")), ("key", "y")]


def test_a_paste_whose_mark_was_taken_for_keys_is_not_lost() -> None:
    parser = WholePasteParser()
    list(parser.feed("\x1b"))
    parser._timeout_time = 0.0
    assert [message.key for message in parser.tick() if isinstance(message, Key)] == ["escape"]
    events = read([BRACKETED_PASTE_START[1:], "text", BRACKETED_PASTE_END], parser)
    assert events[-1] == ("paste", "text")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals need POSIX")
def test_in_a_terminal_it_becomes_an_attachment() -> None:
    from tests.pseudo_terminal import CTRL_Q, terminal

    with terminal() as screen:
        screen.run("tools/demo_tui.py", "--slow", "0.1")
        screen.read_until(b"READY")
        screen.type(pasted(LOG * 100).encode())
        screen.read_until(b"pasted text")
        screen.type(CTRL_Q)
        assert screen.wait() == 0
    assert b"Waiting for the engine" not in screen.text, "nothing was sent"
