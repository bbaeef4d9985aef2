"""The recorded part of the demo: what a real engine said, at the pace at which it said it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from stratadesk.demo.recording import Moment, Recording, moved
from stratadesk.demo.scene import Step
from stratadesk.engine.commands import PreviewReserve, SetHeadAlias, SetReserve
from stratadesk.engine.events import (
    Event,
    Failure,
    FinishReason,
    Phase,
    PhaseChanged,
    RequestFinished,
    VramSample,
)
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.exit_codes import ExitCode

REFUSED = Failure(
    None,
    "A recording",
    "What was recorded cannot be changed afterwards.",
    "Ask once more: in the scripted part the reserve and the alias can be changed.",
    ExitCode.USAGE,
)


class RecordedScene:
    """Plays a recording; while nothing is played its last sample of free memory is repeated."""

    def __init__(self, recording: Recording, clock: Callable[[], float]) -> None:
        self.question = recording.question
        self._recording = recording
        self._clock = clock
        self._sample: VramSample | None = None
        self._ready: VramPhase | None = None

    def load(self) -> Iterator[Step]:
        """Play loading, after saying what this is."""
        yield 0.0, self._recording.provenance
        yield from self._play(self._recording.loading)

    def answer(self, request_id: int) -> Iterator[Step]:
        """Play the answer as that to `request_id`."""
        yield from self._play(self._recording.answer, request_id)

    def cancel(self, request_id: int) -> Iterator[Step]:
        """End the answer: memory and phase as they were when the model was ready."""
        if self._ready is not None:
            yield 0.0, moved(self._ready, self._clock() - self._ready.at)
        for moment in self._recording.answer:
            if isinstance(moment.event, RequestFinished):
                yield 0.0, _cut(moment.event, request_id)
        yield 0.0, PhaseChanged(Phase.READY, self._clock())

    def change(self, command: PreviewReserve | SetReserve | SetHeadAlias) -> Iterable[Event]:
        """Refuse it."""
        return () if isinstance(command, PreviewReserve) else (REFUSED,)

    def idle(self) -> Iterable[Event]:
        """Tell the last sample again."""
        if self._sample is None or self._sample.status.reading is None:
            return ()
        return (moved(self._sample, self._clock() - self._sample.status.reading.at),)

    def _play(self, moments: tuple[Moment, ...], request_id: int | None = None) -> Iterator[Step]:
        if not moments:
            return
        shift, before = self._clock() - moments[0].at, moments[0].at
        for moment in moments:
            event = moved(moment.event, shift, request_id)
            self._notice(event)
            yield moment.at - before, event
            before = moment.at

    def _notice(self, event: Event) -> None:
        if isinstance(event, VramSample):
            self._sample = event
        elif isinstance(event, VramPhase) and event.state is VramState.READY:
            self._ready = event if event.head is HeadPlace.IN else self._ready


def _cut(finished: RequestFinished, request_id: int) -> RequestFinished:
    return replace(finished, request_id=request_id, finish_reason=FinishReason.CANCELLED)
