"""What is told while a model loads: which one, how large it is, and what is being done."""

from __future__ import annotations

import time
from collections.abc import Callable

from stratadesk.engine.events import LoadProgress
from stratadesk.engine.protocols import ProgressSink

PATIENCE_S = 0.3
"""Seconds after which reading compiled kernels is worth telling; compiling is from the start."""

OPENING = "Opening the file"
KERNELS = "Preparing kernels"

KERNELS_TOLD_S = 1.0
"""Seconds from which on a loaded model's `kernels_s` is told: reading kept kernels takes less."""


class LoadClock:
    """Passes what is told on to `progress`, and measures how long loading takes.

    Kernels have a time of their own: they are compiled once, then kept, so that it does not tell
    how long it takes to load the model again.
    """

    def __init__(self, progress: ProgressSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._begun = clock()
        self._kernels_begun: float | None = None
        self.kernels_s = 0.0
        """Seconds from the first to the last report of kernels."""

    @property
    def load_s(self) -> float:
        """Seconds since the loading began, without `kernels_s`."""
        return self._clock() - self._begun - self.kernels_s

    def __call__(self, told: LoadProgress) -> None:
        """Note the time, and pass `told` on."""
        if told.stage == KERNELS:
            now = self._clock()
            if self._kernels_begun is None:
                self._kernels_begun = now
            self.kernels_s = now - self._kernels_begun
        self._progress(told)


class LoadReport:
    """Tells `progress` about the loading of the model `name`, whose file has `file_bytes`.

    Whoever listens may raise to end the loading: each call is a point at which it can end.
    """

    def __init__(self, progress: ProgressSink, name: str, file_bytes: int = 0) -> None:
        self._progress = progress
        self._name = name
        self._file_bytes = file_bytes

    def step(self, stage: str) -> None:
        """A stage begins that has nothing to count."""
        self._tell(stage, 0, 0, "")

    def copied(self, done: int, total: int) -> None:
        """So many bytes of the dense weights are where they are computed with."""
        self._tell("Copying dense weights", done, total, "bytes")

    def uploaded(self, done: int, total: int) -> None:
        """So many bytes of the weights are on the card."""
        self._tell("Copying weights to the card", done, total, "bytes")

    def kernels(self, *, patient: bool) -> Callable[[int, int], None]:
        """Return what is told of each kernel; `patient` when they are read, not compiled."""
        begun = time.monotonic() if patient else float("-inf")

        def report(done: int, total: int) -> None:
            if time.monotonic() - begun > PATIENCE_S or done == total:
                self._tell(KERNELS, done, total, "kernels")

        return report

    def _tell(self, stage: str, done: int, total: int, unit: str) -> None:
        self._progress(LoadProgress(stage, done, total, unit, self._name, self._file_bytes))
