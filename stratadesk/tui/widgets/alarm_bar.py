"""The bar above everything else while something is wrong: what, why, and which key helps."""

import textwrap

from rich.cells import cell_len
from textual.content import Content

from stratadesk.tui.alarm import Alarm, Urgency, alarm_of
from stratadesk.tui.figures import clip
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import lines
from stratadesk.tui.widgets.section import Section

ROWS = {Urgency.CALM: 7, Urgency.URGENT: 10}
MARKS = {Urgency.CALM: "!", Urgency.URGENT: "!!!"}
FILL = "\0"
"""Stands behind a character of two cells, so that what counts characters counts cells."""


class AlarmBar(Section):
    """As wide as the screen and as high as its words; not there while all is well."""

    watches = ("status", "settings", "lost")

    def show(self, state: MonitorState) -> None:
        """Draw the alarm of `state`, or go away."""
        alarm = alarm_of(state)
        self.display = alarm is not None
        self.set_class(alarm is not None and alarm.urgency is Urgency.URGENT, "-urgent")
        super().show(state)

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw the word, and the sentences wrapped beside and below it."""
        alarm = alarm_of(state)
        return alarm_rows(alarm, width) if alarm else Content()


def alarm_rows(alarm: Alarm, width: int) -> Content:
    """Draw an alarm `width` cells wide; the word reads without colour."""
    word = clip(f" {MARKS[alarm.urgency]} {alarm.word} ", width)
    most = ROWS[alarm.urgency]
    rows = _beside(alarm, word, width)
    if len(rows) > most:
        rows = _below(alarm, word, width)
    if len(rows) > most:
        kept = [rows[most - 1], *map(str.strip, rows[most:])]
        rows = [*rows[: most - 1], clip(" ".join(kept), width)]
    first = Content.assemble((word, "bold reverse"), rows[0][len(word) :])
    return lines(first, *(Content(text) for text in rows[1:]))


def _beside(alarm: Alarm, word: str, width: int) -> list[str]:
    """All rows begin behind the word: one for each sentence where they are urgent and fit."""
    indent = " " * (len(word) + 1)
    rows = [indent + sentence for sentence in alarm.sentences]
    if alarm.urgency is Urgency.URGENT and max(map(cell_len, rows), default=0) <= width:
        return rows or [word]
    return _paragraph(alarm, indent, width)


def _below(alarm: Alarm, word: str, width: int) -> list[str]:
    """The word has a row to itself: beside it there is room for too little of the text."""
    return [word, *_paragraph(alarm, " ", width)]


def _paragraph(alarm: Alarm, indent: str, width: int) -> list[str]:
    filled = "".join(each + FILL * (cell_len(each) - 1) for each in alarm.text)
    wrapped = textwrap.wrap(
        filled, max(width, len(indent) + 1), initial_indent=indent, subsequent_indent=indent
    )
    return [row.replace(FILL, "") for row in wrapped] or [indent]
