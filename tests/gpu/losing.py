"""Losing a card in the middle of an answer, and what the process can still do then."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stratadesk.engine.card_events import DeviceLost
from stratadesk.engine.commands import Device, EngineSettings, Generate, LoadModel, SamplingSettings
from stratadesk.engine.events import (
    DecodeProgress,
    Event,
    Failure,
    ModelLoaded,
    RequestFinished,
    TextDelta,
)
from stratadesk.engine.loop import Engine
from stratadesk.exit_codes import ExitCode

PATIENCE_S = 120.0
PROMPT = "hello there"


def until(engine: Engine, *kinds: type) -> list[Event]:
    """The events up to the first of one of `kinds`."""
    events: list[Event] = []
    while not (events and isinstance(events[-1], kinds)):
        event = engine.events.get(timeout=PATIENCE_S)
        assert event is not None, f"none of {kinds} after {PATIENCE_S} s: {events[-5:]}"
        events.append(event)
    return events


def load(engine: Engine, path: Path, settings: EngineSettings) -> ModelLoaded:
    """Load a model, which must succeed."""
    engine.send(LoadModel(path, settings))
    end = until(engine, ModelLoaded, Failure)[-1]
    assert isinstance(end, ModelLoaded), end
    return end


def answer(engine: Engine, number: int) -> tuple[int, ...]:
    """The tokens of an answer of 24."""
    how = SamplingSettings(temperature=0.0)
    ask = Generate(number, raw_prompt=PROMPT, max_tokens=24, sampling=how, ignore_eos=True)
    engine.send(ask)
    end = until(engine, RequestFinished, Failure)[-1]
    assert isinstance(end, RequestFinished), end
    return end.tokens


def tokens_in_peace(path: Path, settings: EngineSettings) -> tuple[int, ...]:
    """Load a model and answer."""
    engine = Engine()
    engine.start()
    try:
        load(engine, path, settings)
        return answer(engine, 1)
    finally:
        engine.stop()


def lose_for_good(
    path: Path, settings: EngineSettings, lose: Callable[[Any], None]
) -> Sequence[int]:
    """Answer, lose the card by `lose(model)` while writing, and find it lost from then on.

    A load onto the card fails with a sentence, as often as it is tried; one onto the host works.
    Returns the tokens of the answer before the loss.
    """
    engine = Engine()
    engine.start()
    try:
        load(engine, path, settings)
        wanted = answer(engine, 1)
        engine.send(Generate(2, raw_prompt=PROMPT, max_tokens=0, ignore_eos=True))
        until(engine, TextDelta, DecodeProgress)
        lose(model_of(engine))
        lost = until(engine, Failure, RequestFinished)
        assert isinstance(lost[-1], Failure), lost[-1]
        assert (lost[-1].request_id, lost[-1].title) == (2, "GPU lost")
        assert any(isinstance(event, DeviceLost) for event in lost)
        for _ in range(2):
            assert_stays_lost(engine, path, settings)
        load(engine, path, replace(settings, device=Device.HOST))
        assert len(answer(engine, 3)) == 24
        assert_stays_lost(engine, path, settings)
    finally:
        engine.stop()
    return wanted


def assert_stays_lost(engine: Engine, path: Path, settings: EngineSettings) -> None:
    """What is loaded onto the card fails with the sentence of a lost one."""
    engine.send(LoadModel(path, settings))
    events = until(engine, ModelLoaded, Failure)
    refused = events[-1]
    assert isinstance(refused, Failure), refused
    assert refused.loading
    assert refused.sentence.startswith("The graphics card is lost to this process: it stopped ")
    assert refused.remedy == "Start StrataDesk again."
    assert refused.exit_code == ExitCode.NO_GPU
    assert any(isinstance(event, DeviceLost) for event in events)


def model_of(engine: Engine) -> Any:
    """The model that is loaded."""
    assert engine._runtime is not None
    return engine._runtime.model


def on_card(**settings: Any) -> EngineSettings:
    """Settings of a model on the card."""
    return EngineSettings(device=Device.CUDA, **settings)
