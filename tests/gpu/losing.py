"""Losing a card in the middle of an answer, and loading the model again."""

from collections.abc import Callable
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


def answer(engine: Engine, number: int) -> Event:
    """The end of a request for 24 tokens."""
    how = SamplingSettings(temperature=0.0)
    ask = Generate(number, raw_prompt=PROMPT, max_tokens=24, sampling=how, ignore_eos=True)
    engine.send(ask)
    return until(engine, RequestFinished, Failure)[-1]


def lose_and_load_again(
    path: Path, settings: EngineSettings, lose: Callable[[Any], None], free: Callable[[Any], int]
) -> None:
    """Answer, lose the card by `lose(model)` while writing, load again, answer alike.

    `free(model)` is the card's free memory in bytes, which must be the same after both loads.
    """
    load = LoadModel(path, settings)
    engine = Engine()
    engine.start()
    try:
        engine.send(load)
        assert isinstance(until(engine, ModelLoaded, Failure)[-1], ModelLoaded)
        wanted = answer(engine, 1)
        assert isinstance(wanted, RequestFinished)
        before = free(model_of(engine))

        engine.send(Generate(2, raw_prompt=PROMPT, max_tokens=0, ignore_eos=True))
        until(engine, TextDelta, DecodeProgress)
        lose(model_of(engine))
        lost = until(engine, Failure, RequestFinished)
        assert isinstance(lost[-1], Failure), lost[-1]
        assert lost[-1].title == "GPU lost"
        assert any(isinstance(event, DeviceLost) for event in lost)

        engine.send(load)
        again = until(engine, ModelLoaded, Failure)[-1]
        assert isinstance(again, ModelLoaded), again
        found = answer(engine, 3)
        assert isinstance(found, RequestFinished), found
        assert found.tokens == wanted.tokens
        assert free(model_of(engine)) == before
    finally:
        engine.stop()


def model_of(engine: Engine) -> Any:
    """The model that is loaded."""
    assert engine._runtime is not None
    return engine._runtime.model


def on_card(**settings: Any) -> EngineSettings:
    """Settings of a model on the card."""
    return EngineSettings(device=Device.CUDA, **settings)
