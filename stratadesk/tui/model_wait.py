"""Whether a model is on its way, from the wish for it on until the engine rests again."""

from stratadesk.engine.events import Phase


class ModelWait:
    """Follows the engine's phases. The wish counts as well: the engine begins a little later."""

    def __init__(self) -> None:
        self._due = False
        self._loading = False

    @property
    def on_its_way(self) -> bool:
        """Whether a model loads, or is to be loaded."""
        return self._due or self._loading

    def expect(self) -> None:
        """A model was asked for."""
        self._due = True

    def ends(self, phase: Phase) -> bool:
        """Take note of a phase; return whether it ends the waiting, READY meaning with a model.

        Another model that was asked for meanwhile is waited for as well.
        """
        if phase is Phase.LOADING:
            self._due, self._loading = False, True
        elif self._loading and phase in (Phase.READY, Phase.EMPTY):
            self._loading = False
            return not self._due
        return False
