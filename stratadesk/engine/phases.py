"""Which phase the engine is in; every change is told, and every busy phase ends.

```
EMPTY → LOADING → READY → PROMPT → DECODING → READY
           ↓                 ↓ ↘       ↓ ↘
        FAILED → EMPTY       ↓  CANCELLING → READY
                            FAILED → READY
```
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stratadesk.engine.events import Phase, PhaseChanged


class Phases:
    """The current phase, and the road back to rest from each busy one.

    `emit` receives a `PhaseChanged` per change; `rest` tells the phase of an engine that does
    nothing (EMPTY or READY). Entering the phase that is already current tells nothing.
    """

    def __init__(
        self,
        emit: Callable[[PhaseChanged], None],
        rest: Callable[[], Phase],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._rest = rest
        self._clock = clock
        self._current: Phase | None = None

    def enter(self, phase: Phase) -> None:
        """Go into `phase` and tell it."""
        if phase is self._current:
            return
        self._current = phase
        self._emit(PhaseChanged(phase, self._clock()))

    def settle(self) -> None:
        """Go into the phase of rest."""
        self.enter(self._rest())

    @contextmanager
    def busy(self, phase: Phase) -> Iterator[None]:
        """Be in `phase` for the length of a `with` block; at rest after it, however it ends."""
        self.enter(phase)
        try:
            yield
        finally:
            self.settle()
