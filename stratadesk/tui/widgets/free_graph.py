"""How much of the card was free in the last minute, with the lines that matter."""

from collections.abc import Sequence

from textual.content import Content

from stratadesk.tui import moment
from stratadesk.tui.braille import BrailleGrid
from stratadesk.tui.figures import NO_VALUE, fit
from stratadesk.tui.free_history import SPAN_S, FreePoint
from stratadesk.tui.mib import MibScale, scale_of
from stratadesk.tui.monitor_state import MonitorState
from stratadesk.tui.widgets.drawing import MUTED, figure, lines, row
from stratadesk.tui.widgets.section import Section

ROWS = 3
GROUND = "\N{BRAILLE PATTERN DOTS-14}"
ROOM_ABOVE = 2
"""The top is at least this many times the reserve, so that its line lies in the middle."""
DASH = 4
"""The reserve's line has one dot in so many."""
HOLDS_S = 2.0
"""A figure is not drawn as known for longer than this."""


class FreeGraph(Section):
    """The figure as it is, a curve of 60 seconds, the reserve as dots, and 0 as the ground."""

    watches = ("history", "status", "ledger")
    ages = True

    def draw(self, state: MonitorState, width: int) -> Content:
        """Draw a title, the curve and the ground."""
        scale = scale_of(state.ledger.total if state.ledger else 0)
        status = state.status
        free = f"{scale.text(status.headroom)} MiB" if status and status.reading else NO_VALUE
        by = f"by {status.source}" if status and status.source else ""
        top, marks = _marks(state, scale)
        room = max(width - max(map(len, (*marks, "0"))) - 1, 0)
        grid = _grid(state, top, room)
        rows = [f"{text} {mark}" for text, mark in zip(grid, marks, strict=True)]
        return lines(
            row(_title(by, width - len(free) - 1), figure(free), width),
            *(Content.styled(text, "$primary") for text in rows),
            Content.styled(GROUND * room + " 0", MUTED),
        )


def heights(
    points: Sequence[FreePoint], now: float, top: int, columns: int, rows: int
) -> list[int | None]:
    """Return the dot row of the curve in each of `columns`; None where nothing is known.

    Each figure holds until the next one, but no longer than `HOLDS_S`; of several figures in one
    column the lowest is drawn. `top` bytes are the uppermost of `rows`.
    """
    found: list[int | None] = [None] * columns
    ends = [*(point.at for point in points[1:]), now]
    for point, end in zip(points, ends, strict=True):
        if point.free is None:
            continue
        height = min(point.free * rows // top, rows - 1)
        first = _column(point.at, now, columns)
        last = _column(min(end, point.at + HOLDS_S), now, columns)
        for x in range(max(first, 0), min(last, columns - 1) + 1):
            before = found[x]
            found[x] = height if before is None else min(before, height)
    return found


def _title(by: str, width: int) -> str:
    """Name the curve, and its source where there is room for all of it."""
    return fit((f"Free, {SPAN_S:.0f} s", by), width, " ")


def _column(at: float, now: float, columns: int) -> int:
    return round((1 - (now - at) / SPAN_S) * (columns - 1))


def _marks(state: MonitorState, scale: MibScale) -> tuple[int, list[str]]:
    """Return what the uppermost row stands for in bytes, and the words beside each row."""
    reserve = state.status.reserve if state.status else 0
    top = max(ROOM_ABOVE * reserve, state.history.most, 1)
    marks = [""] * ROWS
    middle = ROWS - 1 - min(reserve * ROWS // top, ROWS - 1)
    marks[middle] = f"{scale.nearest(reserve)} reserve" if reserve else marks[middle]
    return top, marks


def _grid(state: MonitorState, top: int, room: int) -> list[str]:
    grid = BrailleGrid(max(room, 0), ROWS)
    if state.status is not None:
        line = min(state.status.reserve * grid.rows // top, grid.rows - 1)
        for x in range(0, grid.columns, DASH):
            grid.dot(x, line)
    if state.history.points:
        now = moment.now()
        grid.curve(heights(state.history.points, now, top, grid.columns, grid.rows))
    return grid.lines()
