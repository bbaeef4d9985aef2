"""What the chat leaves with when no model did load: a code for scripts, a sentence for people."""

from collections.abc import Iterable

from stratadesk.engine.events import Event, Failure, ModelLoaded


class ExitStatus:
    """The last load that failed, for as long as no model was ever loaded.

    Whoever has chatted has seen what failed afterwards; a script has only the code.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._ever_loaded = False

    @property
    def code(self) -> int:
        """The exit code of that failure, else 0."""
        return 0 if self.failure is None else self.failure.exit_code

    def follow(self, events: Iterable[Event]) -> None:
        """Take note of what the engine said."""
        for event in events:
            if isinstance(event, ModelLoaded):
                self.failure, self._ever_loaded = None, True
            elif isinstance(event, Failure) and event.loading and not self._ever_loaded:
                self.failure = event
