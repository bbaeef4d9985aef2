"""The one interface of all sources, and those that need no driver of their own."""

from collections.abc import Callable
from typing import Protocol

from stratadesk.engine.vram.readings import CardFigure, ProgramList, Source
from stratadesk.errors import StrataDeskError


class Unavailable(Exception):
    """A source has no figure to give; the message is the reason as the screen shows it."""


class CardSource(Protocol):
    """Tells how full the card is. Reading never raises: no figure is a figure with a reason."""

    def read(self) -> CardFigure:
        """Read it now."""

    def close(self) -> None:
        """Let go of the driver; a later read opens it again."""


class ProgramSource(Protocol):
    """Tells who holds the card's memory. Reading never raises."""

    def read_programs(self) -> ProgramList:
        """Read it now."""

    def close(self) -> None:
        """Let go of the driver; a later read opens it again."""


class CallableSource:
    """A card that a function tells about: CUDA's figure, or the simulated card's.

    `figures` returns (free, total) in bytes and raises a StrataDeskError when it cannot.
    """

    def __init__(self, source: Source, figures: Callable[[], tuple[int, int]]) -> None:
        self._source = source
        self._figures = figures

    def read(self) -> CardFigure:
        """Call the function."""
        try:
            free, total = self._figures()
        except StrataDeskError as error:
            return CardFigure(self._source, why=error.sentence)
        return CardFigure(self._source, total=total, free=free)

    def close(self) -> None:
        """Nothing to let go of."""


class AbsentSource:
    """A source that this machine does not have, kept so that the screen says so."""

    def __init__(self, source: Source, why: str) -> None:
        self._figure = CardFigure(source, why=why)

    def read(self) -> CardFigure:
        """The reason it is absent."""
        return self._figure

    def close(self) -> None:
        """Nothing to let go of."""
