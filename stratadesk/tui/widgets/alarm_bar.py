"""The bar above everything else while something is wrong: what, why, and which key helps."""

import textwrap

from textual.content import Content

from stratadesk.tui.alarm import Alarm, Urgency, alarm_of
from stratadesk.tui.figures import clip
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import lines
from stratadesk.tui.widgets.section import Section

ROWS = {Urgency.CALM: 6, Urgency.URGENT: 10}
MARKS = {Urgency.CALM: "!", Urgency.URGENT: "!!!"}


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
    rows = _wrapped(alarm, word, max(width, 1))
    if len(rows) > most:
        rows = [*rows[: most - 1], clip(" ".join(rows[most - 1 :]), width)]
    first = Content.assemble((word, "bold reverse"), rows[0][len(word) :] if rows else "")
    return lines(first, *(Content(text) for text in rows[1:]))


def _wrapped(alarm: Alarm, word: str, width: int) -> list[str]:
    """A row for each sentence where they are urgent and fit, else one paragraph."""
    indent = " " * (len(word) + 1)
    rows = [indent + sentence for sentence in alarm.sentences]
    if alarm.urgency is Urgency.URGENT and max(map(len, rows), default=0) <= width:
        return rows
    return textwrap.wrap(alarm.text, width, initial_indent=indent)
