"""The turns of a chat, one below the other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widget import MountError, Widget
from textual.widgets import Static

from stratadesk.engine.events import Failure
from stratadesk.tui import handover
from stratadesk.tui.figures import plural
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.screens.settling import Settling
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.attachments import Attachment, attached
from stratadesk.tui.widgets.bare import Bare, Remeasured
from stratadesk.tui.widgets.failure_card import FailureCard
from stratadesk.tui.widgets.notice import Notice
from stratadesk.tui.widgets.opening import Opening
from stratadesk.tui.widgets.user_turn import UserTurn

FIXED = 2
"""The first children beside turns are no turns: the opening, and the line about earlier ones."""

Turn = UserTurn | AnswerTurn | Notice | FailureCard

AT_ONCE = 8
"""Turns of a chat that comes back which are made together; between them nothing is drawn."""
DRAW_S = 0.05
"""Seconds in which what was typed meanwhile is drawn."""
NEAR_SCREENS = 1.0
"""Screens below the first turn that is there from which on those before it are made."""


class Earlier(Static):
    """Says how many turns are not made yet; not there when all are."""

    def show(self, count: int) -> None:
        """Tell of `count` turns."""
        self.display = count > 0
        self.update(f"◇ {plural(count, 'earlier turn')} will be here when you scroll up.")


class Turns(Bare, Remeasured, Vertical):
    """Is never shorter than the view: an anchored view of less would scroll to below zero."""


class Transcript(Bare, Remeasured, VerticalScroll, can_focus=False):
    """Only grows; follows the text as long as the reader is at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._opening = Opening()
        self._not_made = Earlier("", markup=False)
        self._not_made.display = False
        self._turns = Turns(self._opening, self._not_made, classes="-opening")
        self._earlier: list[handover.Turn] = []
        """Turns of another run of the program that are not made yet, the oldest first."""
        self._coming: Turn | None = None
        """The one that is being made; it counts among the earlier ones until it is all there."""
        self._making = asyncio.Lock()
        self._looks_back = self._is_left = False
        self._thinking_shown = False

    def compose(self) -> ComposeResult:
        """Start with the opening."""
        yield self._turns

    def on_mount(self) -> None:
        """Follow from the start."""
        self.anchor()

    @property
    def empty(self) -> bool:
        """Whether there is no turn yet."""
        return len(self._turns.children) == FIXED

    @property
    def first(self) -> Widget | None:
        """The first turn, None when there is none yet."""
        return None if self.empty else self._turns.children[FIXED]

    async def add(self, turn: Turn, before: Widget | None = None) -> None:
        """Put `turn` at the end, or before another; go there if the reader is at the end."""
        self._open(False)
        await self._turns.mount(turn, before=before)

    async def add_failure(self, failure: Failure) -> None:
        """Put a failure at the end; one that stands there already is counted, not repeated."""
        last = self._turns.children[-1]
        if isinstance(last, FailureCard) and last.failure == failure:
            last.again()
        else:
            await self.add(FailureCard(failure))

    async def add_exchange(
        self, text: str, attachments: tuple[Attachment, ...], *, thinking_shown: bool
    ) -> tuple[UserTurn, AnswerTurn]:
        """Add what the user said and an empty answer; return both."""
        question, answer = UserTurn(text, attachments), AnswerTurn(thinking_shown=thinking_shown)
        await self.add(question)
        await self.add(answer)
        self.anchor()
        return question, answer

    def record(self) -> tuple[handover.Turn, ...]:
        """Return all turns as another run of the program can show them."""
        turns = [turn for turn in self._turns.children if isinstance(turn, Turn)]
        return (*self._earlier, *(_record(turn) for turn in turns if turn is not self._coming))

    async def replay(self, turns: Sequence[handover.Turn], *, thinking_shown: bool) -> None:
        """Show turns of another run of the program above all that is here, as they were there.

        The last are made at once. Those before them are, when the reader comes near: to lay out
        all of a long chat takes many seconds, in which neither keys nor the engine get on well.
        Ends when the app is left.
        """
        self._thinking_shown = thinking_shown
        self._earlier = list(turns)
        await self._make_earlier()
        self._look_back()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Make earlier turns when the view comes near them."""
        super().watch_scroll_y(old_value, new_value)
        self._look_back()

    def _look_back(self) -> None:
        if self._earlier and self._is_near and not self._looks_back:
            self._looks_back = True
            self.run_worker(self._make_while_near())

    @property
    def _is_near(self) -> bool:
        return self.scroll_y < self.size.height * NEAR_SCREENS

    async def _make_while_near(self) -> None:
        while self._earlier and self._is_near and not self._is_left:
            await self._make_earlier()
            await asyncio.sleep(DRAW_S)
        self._looks_back = False

    async def _make_earlier(self) -> None:
        """Make the last of the earlier turns; what is on screen stays where it is."""
        # Drawing between any two of them would take longer than they do.
        with self.app.batch_update():
            top = self.first
            before = 0 if top is None else top.virtual_region.y
            for _ in range(AT_ONCE):
                async with self._making:
                    if not self._earlier or self._is_left:
                        break
                    await self._make(self._earlier[-1])
            self._not_made.show(len(self._earlier))
            if top is not None and top.is_attached and self._anchor_released and not self._is_left:
                self._stay_at(top, before)

    def _stay_at(self, turn: Widget, before: int) -> None:
        """Let `turn`, which began in row `before`, stand where it stood on the screen."""
        if isinstance(self.screen, Settling):
            self.screen.lay_out()
            moved = turn.virtual_region.y - before
            self.scroll_to(
                y=self.scroll_y + moved, animate=False, immediate=True, release_anchor=False
            )

    async def _make(self, record: handover.Turn) -> None:
        turn = self._coming = _made(record, self._thinking_shown)
        try:
            await self.add(turn, self.first)
            if isinstance(turn, AnswerTurn) and record.answered is not None:
                await turn.replay(record.answered)
        except MountError:
            # Nothing can be put into an app that is being left.
            if turn.is_attached:
                raise
            self._is_left = True
        else:
            self._earlier.pop()
            self._coming = None

    async def take_out(self, question: UserTurn, answer: AnswerTurn) -> None:
        """Remove an exchange that never was; show the opening again if it was the only one."""
        await answer.close()
        await self._turns.remove_children([question, answer])
        self._open(self.empty)

    async def take_back_remarks(
        self, outdated: Callable[[str], bool], before: Widget | None = None
    ) -> None:
        """Remove the remarks of which `outdated` is true, back to the last answer or question.

        With `before`, only what stands above that turn is looked at.
        """
        turns = list(self._turns.children)
        above = turns[: len(turns) if before is None else turns.index(before)]
        since = takewhile(lambda turn: not isinstance(turn, UserTurn | AnswerTurn), reversed(above))
        gone = [turn for turn in since if isinstance(turn, Notice) and outdated(turn.sentence)]
        if gone:
            await self._turns.remove_children(gone)

    async def clear(self) -> None:
        """Remove all turns and show the opening again."""
        async with self._making:
            self._earlier.clear()
            self._not_made.show(0)
            for answer in self.query(AnswerTurn):
                await answer.close()
            await self._turns.remove_children(list(self._turns.children[FIXED:]))
            self._open(True)

    def show(self, state: MonitorState) -> None:
        """Draw the opening for `state`."""
        self._opening.show(state)

    def show_thinking(self, shown: bool) -> None:
        """Unfold or fold the thinking of every answer."""
        self._thinking_shown = shown
        for answer in self.query(AnswerTurn):
            answer.show_thinking(shown)

    def _open(self, opening: bool) -> None:
        self._opening.display = opening
        self._turns.set_class(opening, "-opening")


def _made(record: handover.Turn, thinking_shown: bool) -> Turn:
    """Make a turn of its record; an answer is still empty."""
    if record.said is not None:
        return UserTurn(record.said.typed, attached(record.said.pastes))
    if record.failure is not None:
        return FailureCard(replace(record.failure, offers_chatml=False), record.times)
    if record.remark is not None:
        return Notice(record.remark)
    return AnswerTurn(thinking_shown=thinking_shown)


def _record(turn: Turn) -> handover.Turn:
    match turn:
        case UserTurn():
            return handover.Turn(said=turn.record())
        case AnswerTurn():
            return handover.Turn(answered=turn.record())
        case Notice():
            return handover.Turn(remark=turn.sentence)
        case FailureCard():
            return handover.Turn(failure=turn.failure, times=turn.times)
