"""Guards against a model file that is cut short while it is in use and ends the program.

To read a mapped page that is gone is a signal that nothing survives: size is looked at before.
"""

import os
import sys
from pathlib import Path

import pytest

from stratadesk.engine.commands import EngineSettings, Generate, LoadModel, SamplingSettings
from stratadesk.engine.events import (
    Event,
    Failure,
    ModelLoaded,
    PromptProgress,
    RequestFinished,
    TextDelta,
)
from stratadesk.engine.loop import Engine
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.exit_codes import ExitCode
from stratadesk.units import KIB, MIB
from tests.gpu.losing import until

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows does not cut a file that is mapped"
)

CARD = EngineSettings(
    max_context=512,
    plan=PlanSettings(reserve=MIB, block_bytes=64 * KIB, alias=HeadAlias.ON, short_read=8),
    machine=MachineFacts(card=4 * MIB, desktop=0, context=0),
)


def ask(number: int, tokens: int) -> Generate:
    how = SamplingSettings(temperature=0.0)
    prompt = tuple(range(5, 5 + tokens))
    return Generate(number, tokens=prompt, max_tokens=0, sampling=how, ignore_eos=True)


def cut_at(engine: Engine, path: Path, kind: type[Event]) -> None:
    """Cut the file to half its size when a `kind` is told: between two steps of the engine."""
    put = engine.events.put

    def noticed(event: Event) -> None:
        put(event)
        if isinstance(event, kind):
            os.truncate(path, path.stat().st_size // 2)
            engine.events.put = put  # type: ignore[method-assign]

    engine.events.put = noticed  # type: ignore[method-assign]


@pytest.mark.parametrize("when", ["between two answers", "while writing", "with the head out"])
def test_a_cut_file_is_a_sentence_and_loads_again_once_it_is_whole(
    when: str, tmp_path: Path, data_dir: Path
) -> None:
    path = tmp_path / "model.gguf"
    whole = (data_dir / "models" / "qwen3moe-iq4_xs.gguf").read_bytes()
    path.write_bytes(whole)
    engine = Engine()
    engine.start()
    try:
        engine.send(LoadModel(path, CARD))
        assert isinstance(until(engine, ModelLoaded, Failure)[-1], ModelLoaded)
        if when == "between two answers":
            os.truncate(path, len(whole) // 2)
        else:
            cut_at(engine, path, TextDelta if when == "while writing" else PromptProgress)
        engine.send(ask(1, 300 if when == "with the head out" else 5))
        told = until(engine, Failure, RequestFinished)
        failure = told[-1]
        assert isinstance(failure, Failure)
        assert f"it had {len(whole):,} bytes and has {len(whole) // 2:,}" in failure.sentence
        assert "Put the whole file back" in failure.sentence + failure.remedy
        was_out = any(e.head is HeadPlace.OUT for e in told if isinstance(e, VramPhase))
        assert was_out is (when == "with the head out")
        assert (failure.title == "Output head lost") is was_out
        assert was_out or failure.exit_code == ExitCode.MODEL_UNUSABLE

        path.write_bytes(whole)
        engine.send(LoadModel(path, CARD))
        assert isinstance(until(engine, ModelLoaded, Failure)[-1], ModelLoaded)
        engine.send(ask(2, 4))
        assert isinstance(until(engine, TextDelta, Failure)[-1], TextDelta)
    finally:
        engine.stop()
