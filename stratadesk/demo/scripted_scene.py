"""The scripted part of the demo, whose reserve and alias can be changed while it plays."""

from collections.abc import Callable, Iterable, Iterator

from stratadesk.demo import script
from stratadesk.demo.laptop import Laptop
from stratadesk.demo.scene import Step
from stratadesk.engine.commands import PreviewReserve, SetHeadAlias, SetReserve
from stratadesk.engine.events import DecodeProgress, Event, FinishReason, TextDelta
from stratadesk.engine.vram.phase_table import VramState


class ScriptedScene:
    """Plays the script on a laptop of its own; each load begins with a fresh one."""

    question = script.QUESTION

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._laptop = Laptop()
        self._progress: DecodeProgress | None = None
        self._text = ""
        self._began = 0.0

    def load(self) -> Iterator[Step]:
        """A model becomes ready, after saying what this is."""
        self._laptop = Laptop()
        yield from script.load(self._laptop, self._clock)

    def answer(self, request_id: int) -> Iterator[Step]:
        """Play the script as the answer to `request_id`."""
        self._progress, self._text, self._began = None, "", self._clock()
        for step in script.answer(self._laptop, request_id, self._clock):
            match step[1]:
                case DecodeProgress() as progress:
                    self._progress = progress
                case TextDelta() as piece:
                    self._text += piece.text
            yield step

    def cancel(self, request_id: int) -> Iterator[Step]:
        """End the answer with what was said so far."""
        progress = self._progress or script.nothing_written(request_id)
        prefill_s = self._clock() - self._began - progress.seconds
        yield from script.finish(
            self._laptop,
            request_id,
            progress,
            self._text,
            prefill_s,
            FinishReason.CANCELLED,
            self._clock,
        )

    def change(self, command: PreviewReserve | SetReserve | SetHeadAlias) -> Iterable[Event]:
        """Change the laptop's books, or say what would change."""
        laptop = self._laptop
        match command:
            case PreviewReserve(reserve):
                return (laptop.preview(reserve),)
            case SetReserve(reserve):
                laptop.reserve = reserve
                applied = laptop.keep_reserve()
                now = self._clock()
                state = VramState.PROMPT if laptop.lent else VramState.READY
                return applied, laptop.settings, laptop.phase(state, now), laptop.cache(now)
            case SetHeadAlias(alias):
                laptop.alias = alias
                return (laptop.settings,)

    def idle(self) -> Iterable[Event]:
        """Tell how much is free."""
        return (self._laptop.sample(self._clock()),)
