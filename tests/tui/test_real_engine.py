"""Guards against an app and an engine that each pass their tests and do not fit together."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.events import Paste

from stratadesk.engine.commands import EngineSettings, SamplingSettings
from stratadesk.engine.loop import Engine
from stratadesk.engine.model import LoadedModel, ModelState
from stratadesk.models import find_models
from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from tests.tui.looking import rows_of, wait_for_text, wait_until

MODEL = "qwen3moe-iq4_xs.gguf"
PROMPT = "Say something about routers."
TOKENS = 24
LONG_PROMPT = "router " * 400


def answer_of_run(model: Path) -> str:
    """What `stratadesk run` says, greedily."""
    command = [sys.executable, "-m", "stratadesk", "run", "-m", str(model), "-p", PROMPT]
    command += ["-n", str(TOKENS), "--temp", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text: str = json.loads(done.stdout)["text"]
    return text


@pytest.fixture
def slow_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every chunk of a prompt take long enough to be seen on screen and stopped."""
    forward = LoadedModel.forward

    def slowly(model: LoadedModel, state: ModelState, tokens: Sequence[int], *, logits: Any) -> Any:
        if len(tokens) > 1:
            time.sleep(0.1)
        return forward(model, state, tokens, logits=logits)

    monkeypatch.setattr(LoadedModel, "forward", slowly)


@pytest.mark.usefixtures("slow_chunks")
async def test_a_chat_from_the_first_key_to_the_last(data_dir: Path) -> None:
    model = data_dir / "models" / MODEL
    wanted = answer_of_run(model)
    engine = Engine()
    app = StrataDeskApp(
        engine, model, TOKENS, EngineSettings(chunk=64), SamplingSettings(0.0), find_models
    )
    async with app.run_test(size=(60, 20)) as pilot:
        await wait_for_text(pilot, "READY")
        await pilot.press(*PROMPT, "enter")
        await wait_for_text(pilot, "Token limit reached")
        assert turns(app)[0].text == wanted
        shown = next(word for word in wanted.split() if word.isalnum())
        await wait_for_text(pilot, shown)

        await pilot.resize_terminal(160, 50)
        await wait_until(pilot, lambda: len(rows_of(app)) == 50, "the new size")
        await wait_for_text(pilot, shown)

        await pilot.press(*"second ")
        app.post_message(Paste(LONG_PROMPT))
        await wait_for_text(pilot, "router router")
        await pilot.press("enter")
        await wait_for_text(pilot, "READING PROMPT")
        await pilot.press("escape")
        await wait_for_text(pilot, "■ Stopped")
        assert turns(app)[1].text == ""
        await wait_for_text(pilot, "READY")
        await pilot.press("ctrl+q")
    assert not app.is_running


def turns(app: StrataDeskApp) -> list[AnswerTurn]:
    """The model's turns on screen."""
    return list(app.screen.query(AnswerTurn))
