"""Has a model answer questions greedily and keeps what its routers chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stratadesk.engine.commands import (
    Device,
    EngineSettings,
    Generate,
    LoadModel,
    Message,
    SamplingSettings,
)
from stratadesk.engine.events import Phase
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.protocols import ProgressSink, tell_nobody
from stratadesk.engine.request import Request
from stratadesk.engine.routing_record import RoutingRecord
from stratadesk.engine.runtime import Runtime, open_runtime
from stratadesk.errors import ContextOverflowError, UsageError

GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class RecordedRouting:
    """What was routed while prompts were read and while answers were written.

    `layers` are the numbers of the model's layers that have experts, `experts` how many each has;
    a token uses at most `used` of them.
    """

    name: str
    architecture: str
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    used: int
    prompts: RoutingRecord
    answers: RoutingRecord


def record_routing(
    path: Path,
    questions: Sequence[str],
    tokens: int,
    progress: ProgressSink,
    asked: Callable[[int], None] = tell_nobody,
) -> RecordedRouting:
    """Answer each of `questions` in a chat of its own with at most `tokens` (at least 1) tokens.

    The host computes without a card, which changes no choice. `asked` is told the number of
    questions answered so far.

    Raises:
        UsageError: the model has no experts, or a question does not fit into its context.
        ModelError: a file that cannot be used.
        MemoryShortageError: not enough RAM.
    """
    runtime = open_runtime(LoadModel(path, EngineSettings(device=Device.HOST)), progress)
    try:
        model = runtime.model
        assert isinstance(model, LoadedModel)
        made = _empty(model)
        for number, question in enumerate(questions):
            asked(number)
            try:
                _answer(runtime, model, made, question, tokens)
            except ContextOverflowError as error:
                sentence = (
                    f"Question {number + 1} of {len(questions)} is too long: {error.sentence}"
                )
                raise UsageError(sentence, "Shorten it.") from None
        return made
    finally:
        runtime.close()


def _empty(model: LoadedModel) -> RecordedRouting:
    shape = model.memory.plan.shape
    routed = [(number, layer) for number, layer in enumerate(shape.layers) if layer.has_experts]
    if not routed:
        raise UsageError(f"{model.name} has no experts.", "Choose a mixture-of-experts model.")
    return RecordedRouting(
        name=model.name,
        architecture=model.architecture,
        layers=tuple(number for number, _ in routed),
        experts=tuple(layer.feed_forward.experts for _, layer in routed),
        used=max(layer.feed_forward.used for _, layer in routed),
        prompts=RoutingRecord(len(routed)),
        answers=RoutingRecord(len(routed)),
    )


def _answer(
    runtime: Runtime, model: LoadedModel, made: RecordedRouting, question: str, tokens: int
) -> None:
    runtime.session.restart()
    command = Generate(1, messages=(Message("user", question),), max_tokens=tokens, sampling=GREEDY)
    request = Request(command, runtime, tell_nobody)
    request.begin()
    while not request.finished:
        record = made.prompts if request.phase is Phase.PROMPT else made.answers
        model.watch_routing(record.note)
        request.step()
