"""Whether a model is on its way, from the wish for it on until the engine rests again."""

from stratadesk.engine.events import Phase


class ModelWait:
    """Follows the engine's phases. The wish counts as well: the engine begins a little later.

    `cancelling` is set from the wish to load nothing until that is so.
    """

    def __init__(self) -> None:
        self._due = False
        self._loading = False
        self.cancelling = False

    @property
    def on_its_way(self) -> bool:
        """Whether a model loads, or is to be loaded."""
        return self._due or self._loading

    def expect(self) -> None:
        """A model was asked for."""
        self._due = True

    def give_up(self) -> None:
        """It was asked to load no model."""
        self.cancelling = self.on_its_way

    def cancelled(self) -> None:
        """The model that was asked for will not come; one that loads ends with the next phase."""
        self._due = self.cancelling = False

    def ends(self, phase: Phase) -> bool:
        """Take note of a phase; return whether it ends the waiting, READY meaning with a model.

        Another model that was asked for meanwhile is waited for as well.
        """
        if phase is Phase.LOADING:
            self._due, self._loading = False, True
            self.cancelling = False
        elif self._loading and phase in (Phase.READY, Phase.EMPTY):
            self._loading = self.cancelling = False
            return not self._due
        return False
