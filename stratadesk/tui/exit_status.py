"""What the chat's exit code tells of models that did not load."""

from collections.abc import Iterable

from stratadesk.engine.events import Event, Failure, ModelLoaded


class ExitStatus:
    """The exit code of the last load that failed, for as long as no model was ever loaded.

    Whoever has chatted has seen what failed afterwards; a script has only the code.
    """

    def __init__(self) -> None:
        self.code = 0
        self._ever_loaded = False

    def follow(self, events: Iterable[Event]) -> None:
        """Take note of what the engine said."""
        for event in events:
            if isinstance(event, ModelLoaded):
                self.code, self._ever_loaded = 0, True
            elif isinstance(event, Failure) and event.loading and not self._ever_loaded:
                self.code = event.exit_code
