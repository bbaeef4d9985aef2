"""Guards against `run` losing text, mixing progress into a pipe, or ignoring Ctrl+C.

A scripted engine says what a real one would; what reaches the two streams is compared whole.
"""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from stratadesk.cli.inputs import read_text
from stratadesk.cli.one_answer import OneAnswer
from stratadesk.cli.parser import build_parser
from stratadesk.cli.run import build_request
from stratadesk.cli.views import JsonView, TextView
from stratadesk.engine.commands import Cancel, Command, Generate, LoadModel, Message
from stratadesk.engine.event_queue import EventQueue
from stratadesk.engine.events import (
    Channel,
    EngineStopped,
    Event,
    Failure,
    FinishReason,
    LoadProgress,
    ModelLoaded,
    PromptProgress,
    RequestFinished,
    RequestStarted,
    TextDelta,
    Timings,
)
from stratadesk.errors import StrataDeskError, UsageError
from stratadesk.exit_codes import ExitCode

pytestmark = pytest.mark.timeout(30)

LOADED = ModelLoaded("m", "qwen3moe", "m.gguf", "host", 1, 64, 1, 0, 0.5, "model", thinks=True)
STARTED = RequestStarted(1, 4, 0, "")
TIMINGS = Timings(0.5, 1.0, 2.0, 4.0, 1.5)
LOAD, REQUEST = LoadModel(Path("m.gguf")), Generate(1, raw_prompt="hi")


def finished(reason: FinishReason = FinishReason.STOP) -> RequestFinished:
    return RequestFinished(1, reason, 4, 0, (7, 8, 9), "Hi é!", "Hm.", TIMINGS, 7, 64)


def thinking(text: str) -> TextDelta:
    return TextDelta(1, Channel.THINKING, text)


def answer(text: str) -> TextDelta:
    return TextDelta(1, Channel.ANSWER, text)


ANSWER = (
    STARTED,
    PromptProgress(1, 4, 0, 4, 1.0, 4),
    thinking("Hm"),
    thinking("."),
    answer("Hi "),
    answer("é!"),
)


class ScriptedQueue(EventQueue):
    """Delivers every event singly and calls `before_get` ahead of each read."""

    before_get: Callable[[], None] = staticmethod(lambda: None)

    def get(self, timeout: float | None = None) -> Event | None:
        self.before_get()
        return super().get(timeout)


class ScriptedEngine:
    """Answers each type of command with the events of its script."""

    def __init__(self, script: dict[type, Sequence[Event]]) -> None:
        self.events = ScriptedQueue()
        self.script = script
        self.sent: list[Command] = []
        self.stopped_after: float | None = None

    def start(self) -> None:
        self.sent.clear()

    def send(self, command: Command) -> None:
        self.sent.append(command)
        for event in self.script.get(type(command), ()):
            self.events.put(event)

    def stop(self, timeout: float = 10.0) -> None:
        self.stopped_after = timeout


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


OnTerminal = Callable[[ScriptedEngine], tuple[str, str]]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """Runs a scripted answer on a terminal that takes styles; returns what both streams got."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(engine: ScriptedEngine) -> tuple[str, str]:
        out, err = Terminal(), Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            OneAnswer(engine, TextView()).execute(LOAD, REQUEST)
        return out.shown, err.shown

    return run


def engine_saying(*events: Event) -> ScriptedEngine:
    return ScriptedEngine({LoadModel: [LOADED], Generate: [*ANSWER, *events]})


def test_into_a_pipe_goes_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    engine = engine_saying(finished())
    assert OneAnswer(engine, TextView()).execute(LOAD, REQUEST) == ExitCode.OK
    assert capsys.readouterr() == ("Hi é!\n", "")
    assert engine.sent == [LOAD, REQUEST]
    assert engine.stopped_after == 10.0


def test_on_a_terminal_thinking_is_dimmed_and_figures_follow(on_terminal: OnTerminal) -> None:
    out, err = on_terminal(engine_saying(finished()))
    assert out == (
        "\x1b[2mThinking…\n\x1b[0m\x1b[2mHm.\x1b[0m\n\x1b[2m…done thinking.\n\n\x1b[0mHi é!\n"
    )
    assert "Reading the prompt: 4 of 4 tokens, 4.0 tok/s" in err
    assert err.endswith("\x1b[2m[3 tokens at 1.5 tok/s, prompt 4 tokens at 4.0 tok/s]\x1b[0m\n")


def test_no_color_leaves_words_only(
    on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out, err = on_terminal(engine_saying(finished()))
    assert out == "Thinking…\nHm.\n…done thinking.\n\nHi é!\n"
    assert "\x1b" not in err


def test_a_model_cannot_send_escapes_to_the_terminal(on_terminal: OnTerminal) -> None:
    out, _ = on_terminal(engine_saying(answer("\x1b]0;owned\x07\x9b31m"), finished()))
    assert "owned" in out
    assert not set("\x07\x9b") & set(out)
    assert "\x1b]" not in out


def test_progress_is_taken_away_before_text_comes(on_terminal: OnTerminal) -> None:
    engine = engine_saying(finished())
    engine.script[LoadModel] = [LoadProgress("Preparing kernels", 3, 12, "kernels"), LOADED]
    _, err = on_terminal(engine)
    words = "Preparing kernels 3 of 12"
    assert err.startswith(f"\r{words}\r{' ' * len(words)}\r")


def test_json_is_one_object_with_exactly_these_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert OneAnswer(engine_saying(finished()), JsonView()).execute(LOAD, REQUEST) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "prompt_tokens": 4,
        "tokens": [7, 8, 9],
        "text": "Hi é!",
        "reasoning": "Hm.",
        "finish_reason": "stop",
        "timings": {
            "load_s": 0.5,
            "prefill_s": 1.0,
            "decode_s": 2.0,
            "prefill_tps": 4.0,
            "decode_tps": 1.5,
        },
        "device": "host",
    }


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have Ctrl+C raise as in a terminal: a background job inherits it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_cancels_and_keeps_the_partial_text(capsys: pytest.CaptureFixture[str]) -> None:
    engine = engine_saying()
    engine.script[Cancel] = [finished(FinishReason.CANCELLED)]
    interrupt_when(engine, lambda: not len(engine.events) and REQUEST in engine.sent)
    assert OneAnswer(engine, TextView()).execute(LOAD, REQUEST) == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("Hi é!\n", "")
    assert engine.sent[-1] == Cancel(1)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_leaves_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    engine = engine_saying()
    interrupt_when(engine, lambda: not len(engine.events) and REQUEST in engine.sent)
    with pytest.raises(KeyboardInterrupt):
        OneAnswer(engine, TextView()).execute(LOAD, REQUEST)
    assert engine.stopped_after == 0.0
    assert capsys.readouterr().out == "Hi é!\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_loading_leaves_at_once() -> None:
    engine = ScriptedEngine({})
    interrupt_when(engine, lambda: True)
    with pytest.raises(KeyboardInterrupt):
        OneAnswer(engine, TextView()).execute(LOAD, REQUEST)
    assert engine.sent == [LOAD]


def interrupt_when(engine: ScriptedEngine, due: Callable[[], bool]) -> None:
    def before_get() -> None:
        if due():
            signal.raise_signal(signal.SIGINT)

    engine.events.before_get = before_get


@pytest.mark.parametrize("stage", [LoadModel, Generate])
def test_a_failure_is_its_sentence_and_its_exit_code(
    stage: type, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = engine_saying(finished())
    engine.script[stage] = [Failure(None, "Model unusable", "No such file.", "Look again.", 3)]
    assert OneAnswer(engine, JsonView()).execute(LOAD, REQUEST) == ExitCode.MODEL_UNUSABLE
    assert capsys.readouterr() == ("", "stratadesk: No such file. Look again.\n")


def test_an_engine_that_dies_is_no_answer() -> None:
    engine = engine_saying(EngineStopped())
    with pytest.raises(StrataDeskError, match="stopped before"):
        OneAnswer(engine, TextView()).execute(LOAD, REQUEST)
    assert engine.stopped_after is not None


class TestRequest:
    BASE: ClassVar = ["run", "-m", "m.gguf"]

    def request(self, *arguments: str) -> Generate:
        return build_request(build_parser().parse_args([*self.BASE, *arguments]))

    def test_a_prompt_is_a_message_of_the_user(self) -> None:
        assert self.request("-p", "hi").messages == (Message("user", "hi"),)

    def test_raw_text_is_the_whole_prompt(self) -> None:
        request = self.request("-p", "<|im_start|>", "--raw", "-n", "4", "--ignore-eos")
        assert request == Generate(1, raw_prompt="<|im_start|>", max_tokens=4, ignore_eos=True)

    def test_tokens_are_taken_as_they_are(self) -> None:
        assert self.request("--tokens", "3 1 2").tokens == (3, 1, 2)

    def test_tokens_and_raw_exclude_each_other(self) -> None:
        with pytest.raises(UsageError, match="--raw"):
            self.request("--tokens", "1", "--raw")


class TestStandardInput:
    def feed(self, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    def test_it_is_read_byte_for_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed(monkeypatch, "é\r\n\n".encode())
        assert read_text("-") == "é\r\n\n"

    def test_a_terminal_is_told_that_it_is_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.feed(monkeypatch, b"hi")
        assert read_text("-") == "hi"
        assert capsys.readouterr() == ("", "")
        self.feed(monkeypatch, b"hi")
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        assert read_text("-") == "hi"
        out, err = capsys.readouterr()
        assert out == ""
        assert "Ctrl+D" in err

    def test_bytes_that_are_not_utf8_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed(monkeypatch, b"ab\xff")
        with pytest.raises(UsageError, match="byte 2 is 0xFF"):
            read_text("-")

    def test_an_argument_with_stray_bytes_is_named(self) -> None:
        with pytest.raises(UsageError, match="character 1"):
            read_text("a\udcff")
