"""An alarm whose second row begins left of the first is read as two things, or not at all."""

import re

import pytest
from rich.cells import cell_len

from stratadesk.tui.alarm import Alarm, Urgency, alarm_of
from stratadesk.tui.widgets.alarm_bar import ROWS, alarm_rows
from tests.tui.card_scenes import SCENES
from tests.tui.test_monitor_parts import after

LONGEST = Alarm(
    "GPU LOST",
    (
        "The graphics card stopped answering while copying to it: CUDA error 719 (unspecified "
        "launch failure).",
        "The chat and what was answered so far are kept.",
        "F8 starts StrataDesk again; nothing is computed until then.",
    ),
    Urgency.URGENT,
)


NARROW = 60
"""Cells below which the end of a long alarm may be cut."""


def alarms(still: float) -> list[Alarm]:
    told = [alarm_of(after(*SCENES[scene](still))) for scene in ("gpu-lost", "zero-wddm", "low")]
    return [LONGEST, *(alarm for alarm in told if alarm is not None)]


@pytest.mark.parametrize("width", range(36, 161))
def test_all_rows_of_the_text_begin_in_one_column_and_lose_no_word(
    width: int, still: float
) -> None:
    shown = alarms(still)
    assert len(shown) == 4
    for alarm in shown:
        rows = alarm_rows(alarm, width).plain.split("\n")
        mark = re.match(rf" !+ {alarm.word} ", rows[0])
        assert mark is not None
        beside = rows[0][mark.end() :].strip() != ""
        text = [row.replace(mark[0], " " * mark.end()) for row in rows[0 if beside else 1 :]]
        assert len({len(row) - len(row.lstrip()) for row in text}) == 1, rows
        words = " ".join(row.strip() for row in text)
        assert words == alarm.text or (width < NARROW and words.endswith("…"))
        assert len(rows) <= ROWS[alarm.urgency]
        assert all(len(row) <= width for row in rows)


def test_the_text_stands_beside_the_word_wherever_it_has_room() -> None:
    rows = alarm_rows(LONGEST, 98).plain.split("\n")
    assert [row[:17].strip() for row in rows] == ["!!! GPU LOST  Th", "(u", "st"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_names_of_wide_characters_are_counted_in_cells(width: int) -> None:
    """A row that is wider than the screen is broken again, by something that knows no column."""
    told = tuple(f"Grew just now: 微信开发者工具.exe +{mib} MiB." for mib in (412, 80, 7))
    rows = alarm_rows(Alarm("LOW", told, Urgency.CALM), width).plain.split("\n")
    assert len(rows) > 1
    assert max(map(cell_len, rows)) <= width
    assert "\0" not in "".join(rows)
    assert "".join(row.strip() for row in rows).count("微信开发者工具.exe") == 3
