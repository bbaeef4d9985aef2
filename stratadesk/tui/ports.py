"""What the app needs from the rest of the program, as protocols: tests bring their own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from stratadesk.engine.commands import Command, EngineSettings, SamplingSettings
from stratadesk.engine.events import Event


class EventSource(Protocol):
    """The engine's outgoing queue."""

    def drain(self) -> list[Event]:
        """Return all unread events in order, without waiting."""

    def next_change(self) -> float | None:
        """Return when the first unread change of a phase happened, None where none is unread."""

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Call `listener`, from the engine's thread, when the queue stops being empty."""


class EnginePort(Protocol):
    """The engine as the app sees it; none of these calls waits but `stop`."""

    @property
    def events(self) -> EventSource:
        """Where everything that the engine says comes from."""

    def start(self) -> None:
        """Start the engine's thread."""

    def send(self, command: Command) -> None:
        """Hand over a command."""

    def stop(self, timeout: float = 10.0) -> None:
        """End the engine's thread, waiting at most `timeout` seconds; twice is harmless."""


class ModelEntry(Protocol):
    """A model found on disk."""

    @property
    def path(self) -> Path:
        """File to load; the first shard of a split model."""

    @property
    def store(self) -> str:
        """Where it was found, in words: "LM Studio"."""

    @property
    def name(self) -> str:
        """Name to show."""

    @property
    def architecture(self) -> str:
        """Architecture in the header."""

    @property
    def quantization(self) -> str:
        """What most weights are stored as ("Q4_K_M"), empty when that is not known."""

    @property
    def total_bytes(self) -> int:
        """Size over all shards."""

    @property
    def shards(self) -> int:
        """Number of files."""

    @property
    def supported(self) -> bool:
        """Whether this version runs it."""

    @property
    def why_not(self) -> str | None:
        """The reason when it does not, one sentence."""


class SkippedEntry(Protocol):
    """A file that is no model to choose."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def reason(self) -> str:
        """Why it was passed over, in words."""


class Place(Protocol):
    """A folder that was searched."""

    @property
    def name(self) -> str:
        """Whose it is, in words: "LM Studio"."""

    @property
    def folder(self) -> Path:
        """The folder."""


class ModelSearch(Protocol):
    """What a search for models found."""

    @property
    def searched(self) -> Sequence[Place]:
        """The folders that were searched, whether they exist or not."""

    @property
    def models(self) -> Sequence[ModelEntry]:
        """Models, unsupported ones among them."""

    @property
    def skipped(self) -> Sequence[SkippedEntry]:
        """Files passed over, each with its reason."""


Discover = Callable[[], ModelSearch]


class Remember(Protocol):
    """Keeps a setting for the next start."""

    def __call__(self, key: str, value: object) -> object:
        """Keep `value` under the name that the setting has among the flags' fields.

        May wait for a file: the app calls it on a thread of its own.

        Raises:
            StrataDeskError: it could not be kept.
        """


def forget(key: str, value: object) -> None:
    """Keep nothing: for an app without a settings file."""


class Prospect(Protocol):
    """What a model would get with other settings; sizes in bytes, `context` in tokens."""

    @property
    def context(self) -> int:
        """Tokens the context would hold."""

    @property
    def kv_bytes(self) -> int:
        """Size of the KV cache."""

    @property
    def slots(self) -> int:
        """Expert slots on the card."""

    @property
    def card_bytes(self) -> int:
        """What it takes of a real card; 0 where none is asked for."""

    @property
    def trouble(self) -> str:
        """Why it would not load, in a sentence; empty when it would."""


Foresee = Callable[[Path, EngineSettings], Prospect | None]
"""Tells what loading would give, on a thread of its own; None where nobody can tell."""


def foresee_nothing(path: Path, settings: EngineSettings) -> None:
    """Tell nothing: for an app without models."""


class Cards(Protocol):
    """Knows a model that is loaded with another card than the others, and how each answers."""

    def fit(self, model: Path, settings: EngineSettings) -> EngineSettings:
        """Return the settings with which `model` is loaded."""

    def sampling(self, model: Path, usual: SamplingSettings) -> SamplingSettings:
        """Return how the answers of `model` are drawn."""

    def remembered(self, model: Path) -> int | None:
        """How many exchanges `model` is told again with a question; None: all of them."""

    def keeps(self, field: str, settings: EngineSettings) -> bool:
        """Whether a choice made while `settings` hold is to be kept for the next start."""


class OneCard:
    """All models have the same card: for an app without a made-up one."""

    def fit(self, model: Path, settings: EngineSettings) -> EngineSettings:
        """Return the settings as they are."""
        return settings

    def sampling(self, model: Path, usual: SamplingSettings) -> SamplingSettings:
        """Draw all answers alike."""
        return usual

    def remembered(self, model: Path) -> int | None:
        """Tell every model all."""

    def keeps(self, field: str, settings: EngineSettings) -> bool:
        """Keep everything."""
        return True
