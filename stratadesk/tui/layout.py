"""Which form the monitor takes, from what was asked for and how big the terminal is."""

from enum import StrEnum

FOLD_BELOW_COLUMNS = 72
FOLD_BELOW_ROWS = 16
WIDE_FROM_COLUMNS = 110
BROAD_FROM_COLUMNS = 150
TIGHT_BELOW_ROWS = 30
ROW_CLASSES = [(0, "-low"), (TIGHT_BELOW_ROWS, "-high")]
"""Classes that a screen gets from so many rows on."""


class MonitorChoice(StrEnum):
    """What the user asked for with F6."""

    WIDE = "wide"
    NARROW = "narrow"
    OFF = "off"

    def following(self) -> "MonitorChoice":
        """The choice that the next press of the key makes."""
        choices = list(MonitorChoice)
        return choices[(choices.index(self) + 1) % len(choices)]


class MonitorForm(StrEnum):
    """What is drawn: a column of 60, 44 or 28 cells beside the chat, one line above it, nothing."""

    BROAD = "broad"
    WIDE = "wide"
    NARROW = "narrow"
    LINE = "line"
    OFF = "off"


def monitor_form(choice: MonitorChoice, columns: int, rows: int) -> MonitorForm:
    """Choose the form for a terminal of `columns` x `rows` cells.

    The choices differ at every size: where there is much room, "wide" is the broad column, and
    where a wide one has no room, "wide" is the narrow column and "narrow" the line.
    """
    if choice is MonitorChoice.OFF:
        return MonitorForm.OFF
    if columns < FOLD_BELOW_COLUMNS or rows < FOLD_BELOW_ROWS:
        return MonitorForm.LINE
    if columns >= WIDE_FROM_COLUMNS:
        broad = choice is MonitorChoice.WIDE and columns >= BROAD_FROM_COLUMNS
        return MonitorForm.BROAD if broad else MonitorForm(choice.value)
    return MonitorForm.NARROW if choice is MonitorChoice.WIDE else MonitorForm.LINE
