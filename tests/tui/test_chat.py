"""A chat that loses a key, a turn or a piece of text is no chat."""

import pytest
from textual.events import Key

from stratadesk.engine.commands import Cancel, Message
from stratadesk.engine.events import FinishReason, Phase
from stratadesk.tui.widgets.answer_status import ending_words
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.prompt_input import PromptInput
from stratadesk.tui.widgets.transcript import Transcript
from tests.tui import scripted_engine as script
from tests.tui.looking import rows_of, text_of, wait_for_text, wait_until
from tests.tui.scripted_engine import ScriptedEngine, make_app


async def test_typing_sends_and_the_answer_streams_in() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"Hi there", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        assert engine.requests[0].messages == (Message("user", "Hi there"),)
        engine.say(script.started(1), script.phase(Phase.DECODING), script.said(1, "Hel"))
        await wait_for_text(pilot, "Hel")
        engine.say(script.said(1, "lo **wor"), script.said(1, "ld**"), script.writing(1, 3))
        await wait_for_text(pilot, "Hello world")
        await wait_for_text(pilot, "Writing 3 tokens")
        engine.say(script.finished(1, "Hello **world**"), script.phase(Phase.READY))
        await wait_for_text(pilot, "3 tokens · 20.0 tok/s")
        assert pilot.app.screen.query_one(PromptInput).text == ""


async def test_keys_that_come_in_one_burst_keep_their_order() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        app = pilot.app
        for key in (*"first", "ctrl+j", *"second", "enter"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await wait_until(pilot, lambda: engine.requests, "a request")
        assert engine.requests[0].messages[0].content == "first\nsecond"


async def test_a_follow_up_carries_the_whole_chat_with_its_reasoning() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"one", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.finished(1, "uno", reasoning="easy"))
        await wait_for_text(pilot, "reused 0 of 64")
        await pilot.press(*"two", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert engine.requests[1].messages == (
            Message("user", "one"),
            Message("assistant", "uno", "easy"),
            Message("user", "two"),
        )
        assert engine.requests[1].request_id != engine.requests[0].request_id


async def test_a_line_about_the_prompt_is_there_at_once_and_gets_its_figures() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(120, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"go")
        await pilot.press("enter")
        await wait_for_text(pilot, "Waiting for the engine")
        engine.say(
            script.phase(Phase.PROMPT),
            script.started(1, prompt=15_934, reused=412),
            script.reading(1, 8_192, 15_934, reused=412),
        )
        await wait_for_text(pilot, "Reading 8,604 of 15,934 tokens")
        await wait_for_text(pilot, "READING PROMPT")
        for figure in ("412 reused", "1,000 tok/s", "7 s left", "54%"):
            await wait_for_text(pilot, figure)


async def test_a_prefix_that_broke_is_explained_in_a_follow_up_only() -> None:
    engine = ScriptedEngine()
    note = "Read afresh: message 2 was edited."
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.started(1, note=note), script.finished(1, "b"))
        await wait_for_text(pilot, "reused 0 of 64")
        assert note not in text_of(pilot.app)
        await pilot.press("c", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        engine.say(script.started(2, note=note))
        await wait_for_text(pilot, note)
        assert text_of(pilot.app).lower().count("afresh") == 1


@pytest.mark.parametrize("during", ["prompt", "answer"])
async def test_escape_stops_and_keeps_what_was_said(during: str) -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*"tell me", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.phase(Phase.PROMPT), script.reading(1, 512, 4096))
        said = "Once upon" if during == "answer" else ""
        if said:
            engine.say(script.said(1, said))
            await wait_for_text(pilot, said)
        await pilot.press("escape")
        await wait_until(pilot, lambda: engine.cancels, "a cancel")
        assert engine.cancels == [Cancel(1)]
        await wait_for_text(pilot, "Stopping")
        engine.say(script.finished(1, said, reason=FinishReason.CANCELLED, tokens=len(said)))
        await wait_for_text(pilot, "■ Stopped")
        assert said in text_of(pilot.app)
        editor = pilot.app.screen.query_one(PromptInput)
        assert editor.text == ("" if said else "tell me")
        await pilot.press(*"!", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        kept = [message.role for message in engine.requests[1].messages]
        assert kept == (["user", "assistant", "user"] if said else ["user"])


async def test_a_second_message_waits_for_the_first_answer() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(notifications=True) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter", "b", "enter")
        await wait_for_text(pilot, "being written")
        assert len(engine.requests) == 1
        assert pilot.app.screen.query_one(PromptInput).text == "b"


async def test_an_empty_message_is_not_sent() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("enter", "space", "enter")
        await pilot.pause()
        assert engine.requests == []


async def test_new_chat_forgets_and_ignores_what_is_still_coming() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "streaming away"))
        await wait_for_text(pilot, "streaming")
        await pilot.press("ctrl+n")
        await wait_for_text(pilot, "is ready")
        assert engine.cancels == [Cancel(1)]
        engine.say(script.said(1, "too late"), script.finished(1, "too late"))
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        assert engine.requests[1].messages == (Message("user", "b"),)
        assert "too late" not in text_of(pilot.app)


async def test_the_view_follows_until_the_reader_scrolls_up() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.said(1, "\n\n".join(f"line {n}" for n in range(60))))
        await wait_for_text(pilot, "line 59")
        await pilot.press("pageup", "pageup")
        view = pilot.app.screen.query_one(Transcript)
        await wait_until(pilot, lambda: "line 59" not in text_of(pilot.app), "scrolled up")
        place = view.scroll_y
        engine.say(script.said(1, "\n\nline 60\n\nline 61"))
        await wait_until(pilot, lambda: view.max_scroll_y > place + 20, "more text")
        await pilot.pause(0.1)
        assert view.scroll_y == place
        while view.scroll_y < view.max_scroll_y:
            await pilot.press("pagedown")
        engine.say(script.said(1, "\n\nline 62"))
        await wait_for_text(pilot, "line 62")


async def test_resizing_while_text_streams_ends_in_the_right_layout() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test(size=(60, 20)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.phase(Phase.DECODING))
        sizes = [(60, 20), (20, 5), (250, 80), (80, 24), (30, 100), (160, 50)]
        for turn in range(12):
            engine.say(script.said(1, f"word{turn} *and* "), script.writing(1, turn + 1))
            await pilot.resize_terminal(*sizes[turn % len(sizes)])
        engine.say(script.said(1, "the end."), script.finished(1, "all"))
        await wait_for_text(pilot, "the end.")
        rows = rows_of(pilot.app)
        assert len(rows) == 50
        assert "WRITING" in text_of(pilot.app)
        assert sum("│" in row for row in rows) > 40
        words = " ".join(text_of(pilot.app).split())
        assert all(f"word{turn} " in words for turn in range(12))


async def test_the_answer_ends_in_the_document_exactly_as_it_was_said() -> None:
    engine = ScriptedEngine()
    pieces = [f"- item {n}\n" for n in range(12)] + ["```py\n", "x = 1\n", "```\n", "done"]
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        for piece in pieces:
            engine.say(script.said(1, piece))
            await pilot.pause(0.01)
        engine.say(script.finished(1, "".join(pieces)))
        await wait_for_text(pilot, "reused 0 of 64")
        answer = pilot.app.screen.query_one(AnswerTurn)
        assert answer.text == "".join(pieces)
        assert answer.markdown.source == "".join(pieces)
        await wait_for_text(pilot, "done")


async def test_text_typed_elsewhere_lands_in_the_editor() -> None:
    engine = ScriptedEngine()
    async with make_app(engine).run_test() as pilot:
        await wait_for_text(pilot, "READY")
        pilot.app.screen.set_focus(None)
        await pilot.press(*"hey")
        assert pilot.app.screen.query_one(PromptInput).text == "hey"


async def test_a_new_chat_counts_no_tokens_of_the_old_one() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press("a", "enter")
        await wait_until(pilot, lambda: engine.requests, "a request")
        engine.say(script.started(1), script.phase(Phase.DECODING), script.writing(1, 3))
        await wait_for_text(pilot, "ctx   128")
        await pilot.press("ctrl+n")
        await wait_for_text(pilot, "ctx     0")
        engine.say(script.finished(1, "late"), script.phase(Phase.READY))
        await wait_for_text(pilot, "READY")
        assert "ctx     0" in text_of(app)
        await pilot.press("b", "enter")
        await wait_until(pilot, lambda: len(engine.requests) == 2, "a second request")
        engine.say(script.writing(2, 5, context=77))
        await wait_for_text(pilot, "ctx    77")


async def test_stop_is_offered_while_there_is_something_to_stop_and_moves_nothing() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await wait_for_text(pilot, "READY")
        resting = rows_of(app)[-1].rstrip()
        assert "Esc" not in resting
        await pilot.press("a", "enter")
        await wait_for_text(pilot, "Esc stop")
        assert rows_of(app)[-1].startswith(resting)


@pytest.mark.parametrize(
    ("context", "words"), [(90, "Token limit reached"), (script.CONTEXT, "Context full")]
)
def test_what_cut_an_answer_off_is_named(context: int, words: str) -> None:
    cut = script.finished(1, "so", reason=FinishReason.LENGTH, context=context)
    assert ending_words(cut).endswith(words)
    assert len(ending_words(cut)) < 24
