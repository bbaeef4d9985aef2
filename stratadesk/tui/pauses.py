"""Keeping the garbage collector from stopping the screen.

A full collection visits every object of the libraries, of a loaded model and of all widgets, some
hundred thousand, and stops all threads for 0.1 to 0.3 seconds. Left alone, it comes several times
in a long answer, because a widget is made of about a hundred objects.
"""

import gc

RARELY = 1_000
"""Middle collections from one full collection to the next, 10 without this."""


class CalmCollector:
    """Has full collections made when nobody is disturbed; objects without cycles need none."""

    def __init__(self) -> None:
        self._usual: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Put full collections off from now on."""
        self._usual = gc.get_threshold()
        gc.set_threshold(*self._usual[:2], RARELY)

    def spare_the_loaded(self) -> None:
        """Collect once, and have later collections pass over everything that lives by now.

        What an earlier model has left, which was passed over until now, is collected as well.
        """
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def collect(self) -> None:
        """Collect while nothing is being written."""
        gc.collect()

    def end(self) -> None:
        """Collect as usual again."""
        if self._usual is not None:
            gc.unfreeze()
            gc.set_threshold(*self._usual)
            self._usual = None
