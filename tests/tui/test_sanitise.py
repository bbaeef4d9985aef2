"""Model output is data: an escape sequence that reaches the terminal can repaint or rename it.

Characters whose width terminals disagree about push borders out of line, and characters that
`str.splitlines` breaks at but Markdown does not make a streamed document repeat itself.
"""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratadesk.tui.sanitise import has_controls, safe_line, safe_text

CONTROLS = {chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))} - {"\n", "\t"}
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    safe = safe_text(text)
    assert not CONTROLS & set(safe)
    assert not {c for c in safe if unicodedata.bidirectional(c) in {"LRE", "RLO", "PDF", "LRI"}}
    safe.encode("utf-8")


@given(ANY_TEXT, st.data())
def test_cleaning_pieces_is_cleaning_the_whole(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    assert safe_text(text[:cut]) + safe_text(text[cut:]) == safe_text(text)


@given(ANY_TEXT)
def test_python_and_markdown_agree_on_lines(text: str) -> None:
    safe = safe_text(text)
    assert safe.splitlines() == safe.removesuffix("\n").split("\n") if safe else True


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert safe_text(safe_text(text)) == safe_text(text)


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_is_untouched(text: str) -> None:
    assert safe_text(text) == text


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "\ufffd31m"),
        ("👨\u200d👩\u200d👧", "👨👩👧"),
        ("❤\ufe0f", "❤"),
        ("👍🏿", "👍"),
        ("🇩🇪", "DE"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("a\u2028b\u0085c", "a\nb\nc"),
        ("שלום, мир, 你好, हिन्दी", "שלום, мир, 你好, हिन्दी"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("tag\U000e0041s", "tags"),
        ("dos\r\nline", "dos\nline"),
    ],
)
def test_examples(raw: str, safe: str) -> None:
    assert safe_text(raw) == safe


def test_one_line_has_no_line_ends() -> None:
    assert safe_line(" a\n b\t\u2028c\x1b ") == "a b c␛"


def test_controls_are_recognised_but_not_line_ends_and_tabs() -> None:
    assert has_controls("\x1b[31m")
    assert has_controls("\x7f")
    assert not has_controls("a\n\tb\r\n")
