"""The settings as a table: key, name, value, and what it means for this model."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from stratadesk.tui.figures import clip
from stratadesk.tui.widgets.drawing import FAINT, MUTED, STRONG, Drawing, lines

KEY, NAME, VALUE = 7, 14, 18


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: the key that changes it, its name and value, and a remark.

    `pending` marks a value that counts from the next load on, `idle` a setting that means
    nothing for this model. A row without a key is a heading.
    """

    key: str
    name: str
    value: str = ""
    note: str = ""
    pending: bool = False
    idle: bool = False


class SettingsTable(Drawing):
    """Rows below each other; remarks are cut where there is no room."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[SettingRow, ...] = ()

    def show(self, rows: Sequence[SettingRow]) -> None:
        """Show these rows from now on."""
        self._rows = tuple(rows)
        self.redraw()

    def picture(self, width: int) -> Content:
        """Draw the rows."""
        return lines(*(_draw(row, width) for row in self._rows))


def _draw(row: SettingRow, width: int) -> Content:
    if not row.key:
        return Content.styled(clip(row.name, width), f"bold {MUTED}")
    mark = "* " if row.pending else "  "
    room = max(width - KEY - NAME - VALUE - len(mark), 0)
    return Content.assemble(
        (_cell(row.key, KEY), FAINT if row.idle else "bold $accent"),
        (_cell(row.name, NAME), FAINT if row.idle else "$foreground"),
        (
            mark + _cell(row.value, min(VALUE, max(width - KEY - NAME - len(mark), 0))),
            FAINT if row.idle else STRONG,
        ),
        (clip(row.note, room), MUTED),
    )


def _cell(text: str, width: int) -> str:
    text = clip(text, max(width - 1, 0))
    return text + " " * max(width - cell_len(text), 0)
