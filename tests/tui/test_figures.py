"""Figures that change width make the whole monitor twitch; cut text must not overflow."""

import doctest
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stratadesk import keys, units
from stratadesk.tui import figures, sanitise
from stratadesk.tui.figures import bar, clip, clock, duration, fit, rate, short_count, spread


@pytest.mark.parametrize("module", [figures, keys, sanitise, units])
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@given(st.floats(-1, 2), st.integers(-3, 200))
def test_a_bar_has_its_width_whatever_the_share(share: float, width: int) -> None:
    filled, rest = bar(share, width)
    assert cell_len(filled + rest) == max(width, 0)


def test_a_bar_is_empty_at_nothing_and_full_at_all() -> None:
    assert bar(0.0, 4) == ("", "────")
    assert bar(1.0, 4) == ("━━━━", "")
    assert bar(0.375, 4) == ("━╸", "──")


@given(st.floats(0, 3599))
def test_a_clock_under_an_hour_never_changes_width(seconds: float) -> None:
    assert len(clock(seconds)) == 7


def test_durations_in_words() -> None:
    assert duration(0.4) == "0 s"
    assert duration(59.6) == "1 min"
    assert duration(200) == "3 min 20 s"
    assert duration(3720) == "1 h 2 min"


def test_counts_and_rates() -> None:
    assert short_count(32_768) == "32.8k"
    assert short_count(99_999) == "100k"
    assert rate(0) == "– tok/s"
    assert rate(21.34) == "21.3 tok/s"
    assert rate(1940.3) == "1,940 tok/s"


@given(st.text(alphabet="ab你好🎈 "), st.integers(0, 20))
def test_clipped_text_fits(text: str, width: int) -> None:
    assert cell_len(clip(text, width)) <= width


@given(st.text(alphabet="ab你"), st.text(alphabet="0123", max_size=5), st.integers(6, 40))
def test_spread_fills_its_width_exactly(left: str, right: str, width: int) -> None:
    assert cell_len(spread(left, right, width)) == width


def test_fit_leaves_out_from_the_end_and_skips_empty_parts() -> None:
    assert fit(("one", "", "two", "three"), 9) == "one · two"
    assert fit(("one", "two"), 3) == "one"
    assert fit(("longer",), 4) == "lon…"
