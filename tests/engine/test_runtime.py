"""Guards against a model that loads half, or that is asked in another format without a word.

The last tests run the real model: its recurrent state is what a wrong prefix would spoil.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratadesk.engine.commands import EngineSettings, Generate, KvFormat, LoadModel, Message
from stratadesk.engine.events import Event, RequestFinished
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.prefix import plan_reading
from stratadesk.engine.prompt import make_prompt
from stratadesk.engine.request import Request
from stratadesk.engine.runtime import Runtime, chat_template_of, open_runtime
from stratadesk.engine.tokenizer import Tokenizer
from stratadesk.errors import GgufError
from tests.engine.harness import GREEDY, chat, of_type, raw

USER, SECOND = Message("user", "Hello there"), Message("user", "And then?")


class Header:
    """The part of a GGUF file that holds a chat template."""

    def __init__(self, source: str) -> None:
        self.source = source

    def get_str(self, key: str, default: str) -> str:
        return self.source if key == "tokenizer.chat_template" else default


def settings(chunk: int = 16) -> EngineSettings:
    return EngineSettings(max_context=256, kv_format=KvFormat.F32, chunk=chunk)


def opened(path: Path) -> Runtime:
    return open_runtime(LoadModel(path, settings()), lambda progress: None)


def test_the_models_own_template_is_used_without_a_warning() -> None:
    template, warnings = chat_template_of(Header("{{ messages }}"), "m")  # type: ignore[arg-type]
    assert (template.origin, warnings) == ("model", ())


def test_a_missing_template_is_replaced_and_declared() -> None:
    template, warnings = chat_template_of(Header(""), "m")  # type: ignore[arg-type]
    assert template.origin == "ChatML"
    assert "no chat template" in warnings[0]


def test_a_template_that_does_not_parse_is_replaced_and_declared() -> None:
    template, warnings = chat_template_of(Header("{% if %}"), "m")  # type: ignore[arg-type]
    assert template.origin == "ChatML"
    assert "does not parse" in warnings[0]
    assert "ChatML" in warnings[0]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_context_beyond_the_models_own_is_warned_of(data_dir: Path, beyond: int) -> None:
    path = data_dir / "models" / "qwen3-tied-q6_k.gguf"
    with GgufFile.open(path) as gguf:
        own = gguf.get_int("qwen3.context_length")
    asked = EngineSettings(max_context=own + beyond)
    made = open_runtime(LoadModel(path, asked), lambda progress: None)
    made.close()
    told = [words for words in made.warnings if "answers get worse" in words]
    assert len(told) == beyond
    assert all(f"{own + 1:,} tokens is more than the model's {own:,}" in words for words in told)


def test_a_model_whose_text_cannot_be_used_is_closed_again(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[LoadedModel] = []

    def close(model: LoadedModel) -> None:
        closed.append(model)

    monkeypatch.setattr(LoadedModel, "close", close)

    def broken(header: GgufFile) -> Tokenizer:
        raise GgufError("no tokens")

    monkeypatch.setattr(Tokenizer, "from_gguf", broken)
    with pytest.raises(GgufError, match="no tokens"):
        opened(data_dir / "models" / "qwen3-tied-q6_k.gguf")
    assert len(closed) == 1


@pytest.fixture(params=["qwen35moe-ud-q4k.gguf", "qwen3moe-iq4_xs.gguf"])
def runtime(data_dir: Path, request: pytest.FixtureRequest) -> Iterator[Runtime]:
    made = opened(data_dir / "models" / request.param)
    yield made
    made.close()


def answer(runtime: Runtime, command: Generate) -> RequestFinished:
    events: list[Event] = []
    running = Request(command, runtime, events.append)
    running.begin()
    while not running.finished:
        running.step()
    runtime.session.verify()
    return of_type(events, RequestFinished)[0]


def test_a_loaded_model_describes_itself(runtime: Runtime) -> None:
    told = runtime.describe()
    assert (told.context, told.device, told.template) == (256, "host", "model")
    assert told.thinks
    assert told.kv_bytes > 0
    assert told.load_s > 0


def test_a_real_state_read_on_equals_one_read_afresh(runtime: Runtime) -> None:
    first = answer(runtime, chat([USER], max_tokens=12))
    reply = Message("assistant", first.text, first.reasoning)
    follow_up = chat([USER, reply, SECOND], 2, max_tokens=12)
    prompt = make_prompt(follow_up, runtime.tokenizer, runtime.template)
    ids = tuple(plan_reading(prompt, runtime.session, runtime.tokenizer).ids)
    second = answer(runtime, follow_up)
    assert second.reused == first.prompt_tokens + 11
    runtime.session.drop("")
    afresh = answer(runtime, Generate(3, tokens=ids, sampling=GREEDY, max_tokens=12))
    assert afresh.reused == 0
    assert afresh.tokens == second.tokens


def test_a_real_state_survives_a_cancel_amid_a_prompt(runtime: Runtime) -> None:
    prompt = raw("The quick brown fox jumps over the lazy dog. " * 2, 1, max_tokens=8)
    whole = answer(runtime, prompt)
    runtime.session.drop("")
    running = Request(prompt, runtime, lambda event: None)
    running.begin()
    running.step()
    running.cancel()
    again = answer(runtime, prompt)
    assert again.reused == 16
    assert again.tokens == whole.tokens
