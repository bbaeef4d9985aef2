"""Guards against text that depends on where tokens end: broken characters, markers or stop
strings shown in part, text lost or doubled, thoughts that end up in the answer.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stratadesk.engine.events import Channel
from stratadesk.engine.textstream import Piece, TextStream

Shown = tuple[str, str, str | None]
"""Thinking, answer, and the stop string found."""

UNICODE = (
    "Plain ASCII, and a tab\tand\r\nlines\n",
    "Ünïcödé ñ ß é",
    "今日は良い天気です。我们在学习",
    "안녕하세요 세계 नमस्ते दुनिया مرحبا",
    "😀👩\u200d👩\u200d👧\u200d👦🇩🇪👍🏽",
    "x̀́̂̃ \u200b\ufeff\x00\x1b[31m \U0010ffff\ufdd0",
)


def shown(stream: TextStream, parts: Iterable[bytes]) -> Shown:
    pieces = [piece for part in parts for piece in stream.push(part)]
    pieces += stream.finish()
    texts = dict.fromkeys(Channel, "")
    for piece in pieces:
        assert piece.text
        texts[piece.channel] += piece.text
    return texts[Channel.THINKING], texts[Channel.ANSWER], stream.stopped


def reference(data: bytes, stop: Sequence[str], starts_thinking: bool) -> Shown:
    """The rules of the module's docstring applied to the whole text."""
    text = data.decode("utf-8", "replace")
    thought, answer, thinking = "", "", starts_thinking
    text = text.lstrip("\r\n") if thinking else text
    while text:
        if thinking:
            before, closed, text = text.partition("</think>")
            thought += before.rstrip("\r\n") if closed else before
            thinking = not closed
        else:
            stops = [(text.find(s), order, s) for order, s in enumerate(stop) if s in text]
            first = min(stops, default=(len(text), 0, None))
            opened = re.match(r"\s*<think>", text) if not answer else None
            if opened is None or first[0] < opened.end() - len("<think>"):
                return thought, answer + text[: first[0]], first[2]
            text = text[opened.end() :]
            thinking = True
        text = text.lstrip("\r\n")
    return thought, answer, None


def two_way_splits(data: bytes) -> Iterable[list[bytes]]:
    return ([data[:i], data[i:]] for i in range(len(data) + 1))


def single_bytes(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize("text", UNICODE)
@pytest.mark.parametrize("starts_thinking", [False, True])
def test_every_split_of_unicode_gives_the_whole_text(text: str, starts_thinking: bool) -> None:
    data = text.encode()
    for parts in (*two_way_splits(data), single_bytes(data)):
        thought, answer, stopped = shown(TextStream(starts_thinking=starts_thinking), parts)
        assert (thought, answer) == ((text, "") if starts_thinking else ("", text))
        assert stopped is None


fragments = st.one_of(
    st.sampled_from(
        ["<think>", "</think>", "<thi", "nk>", "</", "<", "\n", "\n\n", "\r\n", " ", "STOP", "ST"]
    ).map(str.encode),
    st.sampled_from(["OP", "a", "hello", "é", "😀", "<|im_end|>", "<think> "]).map(str.encode),
    st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=3),
)
answers = st.lists(fragments, max_size=10).map(b"".join)
stop_lists = st.lists(
    st.sampled_from(["STOP", "STO", "OP", "\n", "\n\n", "<think>", "</think>", "<", "é", "ahe"]),
    max_size=3,
)


@settings(max_examples=400, deadline=None)
@example(b"<think>\nhm\n</think>\n\nok", [], False, [])
@example(b"\n <think>a</think>\n<think>b</think> c", [], False, [])
@example(b"  STOP", ["STOP"], False, [2])
@example(b"\xf0\x9f\x98", [], True, [1])
@given(answers, stop_lists, st.booleans(), st.lists(st.integers(0, 40), max_size=6))
def test_no_split_changes_what_is_shown(
    data: bytes, stop: list[str], starts_thinking: bool, cuts: list[int]
) -> None:
    want = reference(data, stop, starts_thinking)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    drawn = [data[a:b] for a, b in pairwise(ends)]

    for parts in (*two_way_splits(data), single_bytes(data), drawn, [data]):
        assert shown(TextStream(stop, starts_thinking=starts_thinking), parts) == want


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nhm\n</think>\n\nok", "hm", "ok"),
        ("<think>\n\n</think>\n\nok", "", "ok"),
        ("\n\n<think>a\n\nb</think>\r\nok\n", "a\n\nb", "ok\n"),
        ("<think>a</think>\n<think>\nb\n</think>c", "ab", "c"),
        ("<think>never closed\n", "never closed\n", ""),
        ("The tag <think> opens, </think> closes.", "", "The tag <think> opens, </think> closes."),
        ("ok</think>", "", "ok</think>"),
        ("<thinking>", "", "<thinking>"),
        ("  <thin", "", "  <thin"),
        (" \n ", "", " \n "),
        ("<THINK>x", "", "<THINK>x"),
    ],
)
def test_markers(text: str, thought: str, answer: str) -> None:
    assert shown(TextStream(), [text.encode()]) == (thought, answer, None)


def test_a_prompt_that_ends_in_thinking_starts_the_stream_there() -> None:
    stream = TextStream(starts_thinking=True)
    assert stream.channel is Channel.THINKING
    assert stream.push(b"\n\nso") == [Piece(Channel.THINKING, "so")]
    assert stream.push(b"\n</thi") == []
    assert stream.push(b"nk>\n\nyes") == [Piece(Channel.ANSWER, "yes")]
    assert stream.channel is Channel.ANSWER


def test_text_that_can_be_nothing_else_is_shown_at_once() -> None:
    stream = TextStream(["###"])
    assert stream.push(b"Hi") == [Piece(Channel.ANSWER, "Hi")]
    assert stream.push(b" a#") == [Piece(Channel.ANSWER, " a")]
    assert stream.push(b"#b") == [Piece(Channel.ANSWER, "##b")]


def test_other_markers_and_none() -> None:
    assert shown(TextStream(thinking_markers=("[T]", "[/T]")), [b"[T]a[/T]b"]) == ("a", "b", None)
    stream = TextStream(thinking_markers=None, starts_thinking=True)
    assert shown(stream, [b" <think>a"]) == ("", " <think>a", None)


def test_stop_string_is_never_shown_in_part_and_ends_everything() -> None:
    stream = TextStream(["<STOP>", ""])
    assert stream.push(b"say <ST") == [Piece(Channel.ANSWER, "say ")]
    assert stream.push(b"OP> more") == []
    assert stream.stopped == "<STOP>"
    assert stream.push(b"more") == []
    assert stream.finish() == []


def test_earliest_beginning_of_a_stop_string_counts() -> None:
    assert shown(TextStream(["bcd", "c"]), single_bytes(b"abcd")) == ("", "a", "bcd")
    assert shown(TextStream(["bcd", "c"]), single_bytes(b"abce")) == ("", "ab", "c")


def test_stop_strings_count_in_the_answer_only() -> None:
    stream = TextStream(["User:"])
    text = b"<think>User: asks</think>Hello User: no"
    assert shown(stream, single_bytes(text)) == ("User: asks", "Hello ", "User:")


def test_line_breaks_between_thinking_and_answer_do_not_stop_it() -> None:
    assert shown(TextStream(["\n\n"]), [b"<think>a</think>\n\nb\n\nc"]) == ("a", "b", "\n\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xf0\x9f\x98a", "\ufffda"),
        (b"\xc3(", "\ufffd("),
        (b"\xed\xa0\x80.", "\ufffd\ufffd\ufffd."),
        (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
    ],
)
def test_invalid_bytes_are_flushed(data: bytes, text: str) -> None:
    stream = TextStream()
    pieces = [piece for byte in single_bytes(data) for piece in stream.push(byte)]
    assert "".join(piece.text for piece in pieces) == text


def test_an_unfinished_character_waits_for_at_most_four_bytes() -> None:
    stream = TextStream()
    assert [stream.push(byte) for byte in single_bytes("😀".encode())] == [
        [],
        [],
        [],
        [Piece(Channel.ANSWER, "😀")],
    ]
    assert stream.push(b"\xf0\x9f") == []
    assert stream.finish() == [Piece(Channel.ANSWER, "\ufffd")]
