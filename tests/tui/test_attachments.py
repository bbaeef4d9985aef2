"""A paste of megabytes into an editor freezes it; one with escape sequences paints the screen."""

import time

import pytest
from textual.events import Paste

from stratadesk.tui.widgets.attachments import AttachmentBar, normal_line_ends, wants_attaching
from stratadesk.tui.widgets.prompt_input import PromptInput
from tests.tui.looking import text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app


@pytest.mark.parametrize(
    ("text", "attached"),
    [
        ("short", False),
        ("three\nshort\nlines", False),
        ("x" * 4_001, True),
        ("\n" * 40, True),
        ("red \x1b[31m", True),
    ],
)
def test_what_is_attached(text: str, attached: bool) -> None:
    assert wants_attaching(text) is attached


def test_line_ends_of_terminals_and_windows() -> None:
    assert normal_line_ends("a\r\nb\rc\n") == "a\nb\nc\n"


async def test_five_megabytes_become_one_line_and_arrive_whole() -> None:
    engine = ScriptedEngine()
    log = "".join(f"{n:06} some line of a log\n" for n in range(190_000))
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        editor = pilot.app.screen.query_one(PromptInput)
        pilot.app.post_message(Paste(log))
        began = time.monotonic()
        await pilot.press("h", "i")
        assert time.monotonic() - began < 20.0
        await wait_for_text(pilot, "▸ pasted text · 4.7 MiB · 190,000 lines")
        assert editor.text == "hi"
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        assert engine.requests[0].messages[0].content == "hi\n\n" + log
        await wait_for_text(pilot, "▸ pasted text")
        assert not pilot.app.screen.query_one(AttachmentBar).display


async def test_a_short_paste_goes_into_the_editor() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        editor = pilot.app.screen.query_one(PromptInput)
        pilot.app.post_message(Paste("one\r\ntwo"))
        await wait_until(pilot, lambda: editor.text == "one\ntwo", "pasted")
        assert not pilot.app.screen.query_one(AttachmentBar).display


async def test_control_characters_are_kept_but_never_shown() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        pilot.app.post_message(Paste("a\x1b[31mb"))
        await wait_for_text(pilot, "▸ pasted text · 7 B · 1 line")
        await pilot.press("enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        assert engine.requests[0].messages[0].content == "a\x1b[31mb"
        assert "\x1b" not in text_of(pilot.app)


async def test_backspace_in_an_empty_message_drops_the_last_one() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        pilot.app.post_message(Paste("x" * 5_000))
        await wait_for_text(pilot, "▸ pasted text")
        await pilot.press("a", "backspace", "backspace")
        await wait_until(pilot, lambda: "pasted" not in text_of(pilot.app), "dropped")


async def test_a_trailing_backslash_starts_a_new_line() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "backslash", "enter", "b", "ctrl+j", "c", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        assert engine.requests[0].messages[0].content == "a\nb\nc"
