"""The turns of a chat, one below the other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widget import Widget

from stratadesk.engine.events import Failure
from stratadesk.tui import handover
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.answer_turn import AnswerTurn
from stratadesk.tui.widgets.attachments import Attachment, attached
from stratadesk.tui.widgets.bare import Bare, Remeasured
from stratadesk.tui.widgets.failure_card import FailureCard
from stratadesk.tui.widgets.notice import Notice
from stratadesk.tui.widgets.opening import Opening
from stratadesk.tui.widgets.user_turn import UserTurn

Turn = UserTurn | AnswerTurn | Notice | FailureCard

AT_ONCE = 8
"""Turns of a chat that comes back between which nothing is drawn; the first of them fill a view."""
DRAW_S = 0.05
"""Seconds in which what was typed meanwhile is drawn."""


class Turns(Bare, Remeasured, Vertical):
    """Is never shorter than the view: an anchored view of less would scroll to below zero."""


class Transcript(Bare, Remeasured, VerticalScroll, can_focus=False):
    """Only grows; follows the text as long as the reader is at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._opening = Opening()
        self._turns = Turns(self._opening, classes="-opening")

    def compose(self) -> ComposeResult:
        """Start with the opening."""
        yield self._turns

    def on_mount(self) -> None:
        """Follow from the start."""
        self.anchor()

    @property
    def empty(self) -> bool:
        """Whether there is no turn yet."""
        return len(self._turns.children) == 1

    @property
    def first(self) -> Widget | None:
        """The first turn, None when there is none yet."""
        return None if self.empty else self._turns.children[1]

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
        return tuple(_record(turn) for turn in self._turns.children if isinstance(turn, Turn))

    async def replay(self, turns: Sequence[handover.Turn], *, thinking_shown: bool) -> None:
        """Show turns of another run of the program above all that is here, as they were there.

        The last come first: a long chat takes seconds, and its end can be read meanwhile. Ends
        when the app is left.
        """
        latest_first, earlier = list(reversed(turns)), list[Turn]()
        for start in range(0, len(turns), AT_ONCE):
            # Drawing between any two of them would take longer than they do.
            with self.app.batch_update():
                for record in latest_first[start : start + AT_ONCE]:
                    if not self.is_attached:
                        return
                    turn = _made(record, thinking_shown)
                    if start > 0:
                        # What is out of sight is laid out once, not again for each one more.
                        turn.display = False
                        earlier.append(turn)
                    await self._bring_back(turn, record)
            await asyncio.sleep(DRAW_S)
        with self.app.batch_update():
            for turn in earlier:
                turn.display = True

    async def _bring_back(self, turn: Turn, record: handover.Turn) -> None:
        await self.add(turn, self.first)
        if isinstance(turn, AnswerTurn) and record.answered is not None:
            await turn.replay(record.answered)

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
        for answer in self.query(AnswerTurn):
            await answer.close()
        await self._turns.remove_children(
            [child for child in self._turns.children if child is not self._opening]
        )
        self._open(True)

    def show(self, state: MonitorState) -> None:
        """Draw the opening for `state`."""
        self._opening.show(state)

    def show_thinking(self, shown: bool) -> None:
        """Unfold or fold the thinking of every answer."""
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
