"""Reading a prompt: the ids that are not held yet, one chunk at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stratadesk.engine.events import PromptProgress
from stratadesk.engine.prefix import ReadingPlan
from stratadesk.engine.protocols import Reading
from stratadesk.engine.session import Session


class Prefill:
    """Reads what `plan` leaves to read into `session`, one planned chunk per step.

    Only the last chunk computes logits, and only for its last token.
    """

    def __init__(
        self,
        session: Session[Any],
        plan: ReadingPlan,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._plan = plan
        self._chunk = 1
        self._clock = clock
        self._begun = clock()
        self.read = 0
        self.seconds = 0.0

    @property
    def finished(self) -> bool:
        """Whether the whole prompt is held and the logits after it are known."""
        return self._plan.reused + self.read == len(self._plan.ids)

    def begin(self) -> Reading:
        """Plan how the prompt is read, and begin with it."""
        reading = self._session.begin(len(self._plan.ids) - self._plan.reused)
        self._chunk = reading.chunk
        return reading

    def step(self) -> None:
        """Read one chunk."""
        start = self._plan.reused + self.read
        end = min(start + self._chunk, len(self._plan.ids))
        self._session.read(self._plan.ids[start:end], logits=end == len(self._plan.ids))
        self.read += end - start
        self.seconds = self._clock() - self._begun

    def progress(self, request_id: int) -> PromptProgress:
        """Return how far reading is."""
        return PromptProgress(
            request_id=request_id,
            read=self.read,
            reused=self._plan.reused,
            total=len(self._plan.ids),
            seconds=self.seconds,
            chunk=self._chunk,
        )
