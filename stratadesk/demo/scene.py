"""What the replay engine asks of a scene."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from stratadesk.engine.commands import PreviewReserve, SetHeadAlias, SetReserve
from stratadesk.engine.events import Event

Step = tuple[float, Event]
"""Seconds to wait after the step before, and what is said then."""


class Scene(Protocol):
    """One part of the demo."""

    @property
    def question(self) -> str:
        """What the user is taken to ask."""

    def load(self) -> Iterator[Step]:
        """A model becomes ready."""

    def answer(self, request_id: int) -> Iterator[Step]:
        """A question is answered."""

    def cancel(self, request_id: int) -> Iterator[Step]:
        """The answer that is being played ends here."""

    def change(self, command: PreviewReserve | SetReserve | SetHeadAlias) -> Iterable[Event]:
        """What a live setting does."""

    def idle(self) -> Iterable[Event]:
        """What is told while nothing happens."""
