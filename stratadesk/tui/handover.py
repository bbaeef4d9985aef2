"""What the program hands over to itself when it has to start again: the chat, and what was chosen.

All of it is frozen and of types that `engine.plain_objects` can write.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stratadesk.engine.commands import EngineSettings, Message, SamplingSettings
from stratadesk.engine.events import Failure, RequestFinished
from stratadesk.settings_schema import InterfaceSettings


@dataclass(frozen=True, slots=True)
class Written:
    """What a user has written, sent or not: typed text and whole pastes."""

    typed: str = ""
    pastes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as far as it came, and what stood around it.

    `note` is why the prompt was read afresh; the thinking took `thought_s` seconds and
    `thought_tokens` tokens. At most one of `finished` and `failure` says how it ended.
    """

    text: str
    reasoning: str
    note: str = ""
    thought_s: float = 0.0
    thought_tokens: int = 0
    finished: RequestFinished | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One piece of a transcript: exactly one of the four is there.

    `times` is how often the failure has happened, one time after the other.
    """

    said: Written | None = None
    answered: Answered | None = None
    remark: str | None = None
    failure: Failure | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """A chat: what the model is told of it, what stands on the screen, and what was not sent.

    `unanswered` are messages that came back without an answer, the latest one last.
    """

    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    draft: Written = Written()
    unanswered: tuple[Written, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """Everything that is not on the command line. `settings` are those of the next load."""

    model: str | None
    settings: EngineSettings
    sampling: SamplingSettings
    look: InterfaceSettings
    chat: ChatRecord


class HandOver(Protocol):
    """Keeps what is handed over until the program has started again."""

    def __call__(self, handover: Handover) -> Path:
        """Return the file that holds it; raises StrataDeskError where it cannot be kept."""
