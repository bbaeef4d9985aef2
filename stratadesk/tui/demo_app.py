"""The app as the demo shows it: questions ask themselves until someone types."""

from collections.abc import Callable

from stratadesk.tui.app import StrataDeskApp
from stratadesk.tui.widgets.composer import Composer

FIRST_PAUSE_S, PAUSE_S = 1.5, 4.0


class DemoApp(StrataDeskApp):
    """Asks what `question` returns when the engine has rested for a moment.

    `questions` is how many ask themselves; after that, and once the user has typed something,
    only Enter asks.
    """

    _question: Callable[[], str] = staticmethod(lambda: "")
    _left = 0
    _planned = False

    def play(self, question: Callable[[], str], questions: int) -> None:
        """Set what is asked; before `run`."""
        self._question = question
        self._left = questions

    async def on_engine_woke(self) -> None:
        """Show what the engine said, and plan the next question if it rests."""
        await super().on_engine_woke()
        chat = self.chat_screen.chat
        resting = self.chat_screen.state.model is not None and not self.chat_screen.state.busy
        if resting and not chat.busy and not self._planned and self._left:
            self._planned = True
            self.set_timer(FIRST_PAUSE_S if chat.transcript.empty else PAUSE_S, self._ask)

    def _ask(self) -> None:
        self._planned = False
        composer = self.chat_screen.query_one(Composer)
        if not composer.is_empty:
            self._left = 0
        elif not self.chat_screen.chat.busy:
            self._left -= 1
            composer.ask(self._question())
