"""How quick a model decodes alone and under the screen, in turns."""

import asyncio
from pathlib import Path

from stratadesk.cli.bench_screen import answering, until
from stratadesk.cli.one_answer import OneAnswer
from stratadesk.engine.commands import (
    EngineSettings,
    Generate,
    LoadModel,
    Message,
    SamplingSettings,
)
from stratadesk.engine.events import Event, Failure, RequestFinished
from stratadesk.engine.failures import error_of
from stratadesk.engine.loop import Engine
from stratadesk.errors import StrataDeskError

PROMPT = "Explain in many words what a router in a mixture of experts does."
TOKENS = 512


class _Ear:
    """A view that shows nothing and keeps how the answer ended."""

    def __init__(self) -> None:
        self.finished: RequestFinished | None = None
        self.failure: Failure | None = None

    def show(self, event: Event) -> None:
        """Keep the end."""
        if isinstance(event, RequestFinished):
            self.finished = event
        elif isinstance(event, Failure):
            self.failure = event

    def close(self) -> None:
        """Nothing is open."""


def pairs(model: Path, settings: EngineSettings, count: int) -> list[tuple[float, float]]:
    """Decode `count` times alone and under the screen, in turns; tokens per second of each.

    Raises:
        StrataDeskError: the model cannot be loaded, or says nothing.
    """
    return [(_alone(model, settings), _under_screen(model, settings)) for _ in range(count)]


def _alone(model: Path, settings: EngineSettings) -> float:
    request = Generate(
        1,
        messages=(Message("user", PROMPT),),
        max_tokens=TOKENS,
        sampling=SamplingSettings(temperature=0.0),
    )
    ear = _Ear()
    OneAnswer(Engine(), ear).execute(LoadModel(model, settings), request)
    if ear.failure is not None:
        raise error_of(ear.failure)
    return _speed(ear.finished)


def _under_screen(model: Path, settings: EngineSettings) -> float:
    async def answer() -> RequestFinished | None:
        async with answering(Engine(), model, settings, TOKENS, PROMPT) as (_, overheard):
            await until(lambda: overheard.finished or overheard.failure)
            return overheard.finished

    return _speed(asyncio.run(answer()))


def _speed(finished: RequestFinished | None) -> float:
    if finished is None or finished.timings.decode_tps <= 0:
        raise StrataDeskError(
            "The model wrote nothing, so there is no speed to measure.",
            "Measure with a larger -n or another model.",
        )
    return finished.timings.decode_tps
