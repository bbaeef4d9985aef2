"""Guards against a line mode that tells less than the screen, or tells it into an answer.

What is compared is the whole page: a screen reader and a pipe get every character of it.
"""

import _thread
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratadesk.cli import main
from stratadesk.cli.plain_chat import PlainChat
from stratadesk.cli.plain_page import PlainPage
from stratadesk.engine.commands import (
    Cancel,
    Command,
    Generate,
    LoadModel,
    SamplingSettings,
)
from stratadesk.engine.events import (
    EngineStopped,
    Event,
    FinishReason,
    MemorySample,
    ModelLoaded,
    Phase,
    VramSample,
)
from stratadesk.engine.vram.states import MemoryState
from stratadesk.exit_codes import ExitCode
from stratadesk.tui.handover import ChatRecord
from stratadesk.units import GIB, MIB
from tests.test_cli_plain_facts import status
from tests.tui import scripted_engine as script
from tests.tui.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.timeout(60)

LOAD = LoadModel(Path("m.gguf"))
READY = "[ready] Demo 30B A3B · host · context 32,768 tokens · loaded in 3.2 s\n"
RAM = MemorySample(2 * GIB, 20 * GIB, 32 * GIB)


class Lines(io.StringIO):
    """Standard input that is no terminal, and says when a line is asked for."""

    def __init__(self, text: str, asked: Callable[[], None] = lambda: None) -> None:
        super().__init__(text)
        self._asked = asked

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        self._asked()
        return super().readline(size)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell's background jobs are started with SIGINT ignored, which these tests need."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def answers(command: Command) -> Iterable[Event]:
    """Load at once; answer with a thought and two words."""
    if isinstance(command, Generate):
        number = command.request_id
        return (
            script.phase(Phase.PROMPT),
            script.started(number, prompt=64, reused=10),
            script.reading(number, 54, 64, reused=10),
            script.phase(Phase.DECODING),
            script.thought(number, "Hm.\nSo."),
            script.said(number, "Hello "),
            script.said(number, "there."),
            script.finished(number, "Hello there.", reasoning="Hm.\nSo.", context=67),
            script.phase(Phase.READY),
        )
    return script.loaded() if isinstance(command, LoadModel) else ()


def chat(
    monkeypatch: pytest.MonkeyPatch,
    typed: str | Lines,
    engine: ScriptedEngine | None = None,
    *,
    remembered: int | None = None,
    thinking_shown: bool = True,
    before: ChatRecord | None = None,
    hand_over: Callable[[ChatRecord], Path] = lambda _: Path("kept"),
) -> tuple[str, int]:
    """Chat with these lines on standard input; return the page and the exit code."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdin", Lines(typed) if isinstance(typed, str) else typed)
    plain = PlainChat(
        engine or ScriptedEngine(answers),
        PlainPage(stream),
        SamplingSettings(),
        remembered=remembered,
        thinking_shown=thinking_shown,
        before=before,
        hand_over=hand_over,
    )
    code = plain.run(LOAD)
    return stream.getvalue(), code


def test_a_whole_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    page, code = chat(monkeypatch, "Hi\n/quit\nnever asked\n")
    assert page == (
        READY + "You: Hi\n"
        "[prompt] reading 54 tokens, 10 reused · RAM 19.0 GiB, 7,168 MiB available\n"
        "[decoding] prompt read at 1,000.0 tok/s · RAM 19.0 GiB, 7,168 MiB available\n"
        "Thinking: Hm.\nSo.\n"
        "Model: Hello there.\n"
        "[ready] 3 tokens at 20.0 tok/s · context 67 of 32,768"
        " · RAM 19.0 GiB, 7,168 MiB available\n"
        "You: /quit\n"
    )
    assert code == ExitCode.OK


def test_thinking_stays_hidden_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    page, _ = chat(monkeypatch, "Hi\n", thinking_shown=False)
    assert "Thinking" not in page
    assert "\nModel: Hello there.\n" in page


def test_the_end_of_the_input_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(answers)
    page, code = chat(monkeypatch, "Hi", engine)
    assert (code, engine.stops) == (ExitCode.OK, 1)
    assert page.endswith("\nYou: \n")


def test_who_leaves_is_not_told_that_the_engine_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine(answers)
    monkeypatch.setattr(engine, "stop", lambda timeout=10.0: engine.say(EngineStopped()))
    page, code = chat(monkeypatch, "/quit\n", engine)
    assert code == 0
    assert "[ready]" in page
    assert "[stopped]" not in page


def test_messages_go_on_after_a_backslash_and_chats_start_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine(answers)
    page, _ = chat(monkeypatch, "one\\\ntwo\n\n  \nthree\n/new\nfour\n", engine)
    asked = [[message.content for message in request.messages] for request in engine.requests]
    assert asked == [["one\ntwo"], ["one\ntwo", "Hello there.", "three"], ["four"]]
    assert "You: one\\\n...: two\n[prompt]" in page
    assert "You: /new\n[new chat]\nYou: four\n" in page


def test_commands_are_words_and_paths_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(answers)
    page, _ = chat(monkeypatch, "/help\n/exit\n/etc/passwd is what?\n", engine)
    assert "There is no command /exit; /help lists them.\n" in page
    for command in ("/new", "/quit", "Ctrl+C"):
        assert command in page.partition("/help\n")[2].partition("You: ")[0]
    assert [len(request.messages) for request in engine.requests] == [1]


def test_what_a_terminal_would_obey_is_made_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    def hostile(command: Command) -> Iterable[Event]:
        if isinstance(command, Generate):
            red = "red \x1b[31m\x07"
            return (script.said(1, red), script.finished(1, red))
        return script.loaded(name="evil\x1b[2J\nname")

    page, _ = chat(monkeypatch, "Hi\x1b[31m\n", ScriptedEngine(hostile))
    assert "Model: red ␛[31m␇\n" in page
    assert not set(page) & {"\x1b", "\x07"}
    assert page.startswith("[ready] evil␛[2J name ·")


def test_no_character_draws_a_box_or_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    page, _ = chat(monkeypatch, "Hi\n/help\n")
    drawn = [character for character in page if "\u2500" <= character <= "\u28ff"]
    assert drawn == []


def test_an_alarm_comes_while_a_question_waits_and_the_question_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine(answers)
    told = threading.Event()

    class Page(io.StringIO):
        def write(self, text: str, /) -> int:
            if "memory LOW" in text:
                threading.Timer(0.05, told.set).start()
            return super().write(text)

    def alarm() -> None:
        if not told.is_set():
            engine.say(VramSample(status(MemoryState.LOW, 100 * MIB)))
            assert told.wait(60)

    stream = Page()
    monkeypatch.setattr(sys, "stdin", Lines("Hi\n", alarm))
    plain = PlainChat(
        engine, PlainPage(stream), SamplingSettings(), hand_over=lambda _: Path("kept")
    )
    plain.run(LOAD)
    page = stream.getvalue()
    assert page.index("You: \n[memory LOW] ") < page.index("\nYou: Hi\n")


def test_a_model_that_remembers_little_is_told_little_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine(answers)
    chat(monkeypatch, "a\nb\nc\n/quit\n", engine, remembered=1)
    assert [len(request.messages or ()) for request in engine.requests] == [1, 3, 3]


def test_ctrl_c_stops_the_answer_and_a_second_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(command: Command) -> Iterable[Event]:
        if isinstance(command, Generate):
            threading.Timer(0.2, _thread.interrupt_main).start()
            return (script.phase(Phase.DECODING), script.said(1, "and on"))
        if isinstance(command, Cancel):
            threading.Timer(0.2, _thread.interrupt_main).start()
            return (script.phase(Phase.CANCELLING),)
        return script.loaded() if isinstance(command, LoadModel) else ()

    engine = ScriptedEngine(endless)
    page, code = chat(monkeypatch, "Hi\nnever sent\n", engine)
    assert [cancel.request_id for cancel in engine.cancels] == [1]
    assert len(engine.requests) == 1
    assert "Model: and on\n[stopping]\n" in page
    assert code == ExitCode.OK


def test_a_stopped_answer_is_kept_and_the_chat_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stoppable(command: Command) -> Iterable[Event]:
        match command:
            case Generate(request_id=1):
                threading.Timer(0.2, _thread.interrupt_main).start()
                return (script.said(1, "half"),)
            case Cancel():
                return (script.finished(1, "half", reason=FinishReason.CANCELLED),)
        return answers(command)

    engine = ScriptedEngine(stoppable)
    page, _ = chat(monkeypatch, "Hi\nGo on\n", engine)
    assert "Model: half\n[ready] stopped by you · " in page
    assert [message.content for message in engine.requests[1].messages] == ["Hi", "half", "Go on"]


def test_ctrl_c_at_the_question_asks_for_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    presses = 0

    def press() -> None:
        nonlocal presses
        presses += 1
        if presses <= 2:
            raise KeyboardInterrupt

    page, code = chat(monkeypatch, Lines("never read\n", press))
    assert page == READY + "You: \nPress Ctrl+C again to quit.\nYou: \n"
    assert code == ExitCode.OK


def test_a_failed_answer_is_told_and_a_failed_load_ends_the_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(command: Command) -> Iterable[Event]:
        if isinstance(command, Generate):
            return (script.failure(None), script.failure(command.request_id))
        return script.loaded() if isinstance(command, LoadModel) else ()

    page, code = chat(monkeypatch, "Hi\nagain\n", ScriptedEngine(failing))
    assert page.count("[failed] The template stops at line 3: 'tools' is undefined. ") == 4
    assert code == ExitCode.OK
    page, code = chat(monkeypatch, "Hi\n", ScriptedEngine(lambda _: (script.failure(None),)))
    assert page.startswith("[failed] ")
    assert "You:" not in page
    assert code == 3


def test_a_reload_that_fails_leaves_the_chat_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter((script.loaded(), (script.failure(None),), script.loaded()))

    def once(command: Command) -> Iterable[Event]:
        return next(loads) if isinstance(command, LoadModel) else answers(command)

    engine = ScriptedEngine(once)
    page, code = chat(monkeypatch, "/reload\nlost\n/reload\nHi\n", engine)
    assert page.count("[failed] ") == 1
    assert "\nYou: lost\nNo model is loaded; /reload loads the model again.\n" in page
    assert page.count("/reload loads the model again.") == 2
    assert [str(message.content) for message in engine.requests[0].messages] == ["Hi"]
    assert page.count("Model: Hello there.") == 1
    assert code == ExitCode.OK


def test_an_engine_that_stops_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(command: Command) -> Iterable[Event]:
        return (EngineStopped(),) if isinstance(command, Generate) else answers(command)

    page, _ = chat(monkeypatch, "Hi\nnever sent\n", ScriptedEngine(dying))
    assert page.endswith("[stopped] The engine has stopped; start StrataDesk again.\n")


def test_a_reader_that_has_left_ends_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str, /) -> int:
            if "Model" in text:
                raise BrokenPipeError
            return len(text)

    monkeypatch.setattr(sys, "stdin", Lines("Hi\nmore\n"))
    engine = ScriptedEngine(answers)
    page = PlainPage(Closed())
    plain = PlainChat(engine, page, SamplingSettings(), hand_over=lambda _: Path("kept"))
    with pytest.raises(BrokenPipeError):
        plain.run(LOAD)
    assert engine.stops == 1


@pytest.mark.parametrize(("kernels_s", "told"), [(0.4, ""), (42.1, " · kernels in 42.1 s")])
def test_the_time_of_kernels_is_told_apart_from_that_of_loading(
    kernels_s: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading(command: Command) -> Iterable[Event]:
        if not isinstance(command, LoadModel):
            return ()
        return [
            replace(event, kernels_s=kernels_s) if isinstance(event, ModelLoaded) else event
            for event in script.loaded()
        ]

    page, _ = chat(monkeypatch, "/quit\n", ScriptedEngine(loading))
    assert READY.rstrip("\n") + told + "\n" in page


def test_the_real_engine_on_a_simulated_card(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(data_dir / "models" / "qwen35moe-ud-q4k.gguf")
    card = ["--vram-mib", "6", "--free-mib", "5", "--vram-reserve-mib", "1", "-c", "512"]
    monkeypatch.setattr(sys, "stdin", Lines("hello " * 100 + "\n/quit\n"))
    assert main(["--plain", "-m", model, *card, "-n", "4", "--temp", "0"]) == 0
    page = capsys.readouterr().out
    prompt, decoding = (
        next(filter(phase, page.splitlines())) for phase in (_is("prompt"), _is("decoding"))
    )
    assert "head out (315.0 KiB)" in prompt
    assert " 4 of 15 slots lent" in prompt
    assert "head in, last back in" in decoding
    assert "0 of 15 slots lent · free 1 MiB, reserve 1 MiB" in decoding
    assert "\nModel: " in page


def _is(phase: str) -> Callable[[str], bool]:
    return lambda line: line.startswith(f"[{phase}]")


def test_without_a_model_one_is_chosen_by_its_number(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRATADESK_MODELS", str(data_dir / "models"))
    monkeypatch.setenv("HOME", str(data_dir))
    monkeypatch.setattr(sys, "stdin", Lines("0\nx\n"))
    assert main(["--plain"]) == 0
    page = capsys.readouterr().out
    assert "1. " in page
    assert page.count("Write a number from 1 to 4.\n") == 2
