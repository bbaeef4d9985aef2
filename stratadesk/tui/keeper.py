"""Keeping settings for the next start without making anyone wait for a file."""

import logging
import threading
from collections.abc import Callable

from stratadesk.errors import StrataDeskError
from stratadesk.tui.ports import Remember

WAIT_S = 0.5
"""How long values are collected: a key is often pressed several times."""

log = logging.getLogger(__name__)


class Keeper:
    """Collects values and writes each key's last one.

    `later` calls back on the app's thread after a delay in seconds. `write` may run on any
    thread.
    """

    def __init__(
        self, remember: Remember, later: Callable[[float, Callable[[], object]], object]
    ) -> None:
        self._remember = remember
        self._later = later
        self._waiting: dict[str, object] = {}
        self._writing = threading.Lock()

    def keep(self, key: str, value: object, due: Callable[[], object]) -> None:
        """Keep `value` soon; `due` is called when it is time to `write`."""
        if not self._waiting:
            self._later(WAIT_S, due)
        self._waiting[key] = value

    def write(self) -> str:
        """Write what waits; return a sentence about what could not be kept, else nothing."""
        with self._writing:
            waiting, self._waiting = self._waiting, {}
            troubles = [self._write(key, value) for key, value in waiting.items()]
        return next(filter(None, troubles), "")

    def _write(self, key: str, value: object) -> str:
        try:
            self._remember(key, value)
        except StrataDeskError as error:
            log.warning("%s was not kept: %s", key, error)
            return f"Not kept for the next start: {error.sentence}"
        return ""
