"""A monitor beside a chat of twenty columns helps nobody; a key that changes nothing confuses."""

import pytest

from stratadesk.tui.layout import MonitorChoice, MonitorForm, monitor_form

SIZES = [(20, 5), (60, 20), (71, 40), (80, 24), (109, 30), (110, 30), (160, 50), (250, 80)]


@pytest.mark.parametrize(
    ("size", "form"),
    [
        ((20, 5), MonitorForm.LINE),
        ((60, 20), MonitorForm.LINE),
        ((200, 15), MonitorForm.LINE),
        ((80, 24), MonitorForm.NARROW),
        ((110, 30), MonitorForm.WIDE),
        ((149, 50), MonitorForm.WIDE),
        ((150, 50), MonitorForm.BROAD),
        ((250, 80), MonitorForm.BROAD),
    ],
)
def test_the_form_follows_the_size(size: tuple[int, int], form: MonitorForm) -> None:
    assert monitor_form(MonitorChoice.WIDE, *size) is form


@pytest.mark.parametrize("size", SIZES)
def test_off_is_off_and_no_choice_is_wider_than_the_one_before(size: tuple[int, int]) -> None:
    forms = [monitor_form(choice, *size) for choice in MonitorChoice]
    order = list(MonitorForm)
    assert forms[-1] is MonitorForm.OFF
    assert [order.index(form) for form in forms] == sorted(order.index(form) for form in forms)


@pytest.mark.parametrize("size", [size for size in SIZES if size[0] >= 72])
def test_each_press_changes_something_where_there_is_room(size: tuple[int, int]) -> None:
    assert len({monitor_form(choice, *size) for choice in MonitorChoice}) == 3


def test_three_presses_lead_back() -> None:
    choice = MonitorChoice.WIDE
    seen = [choice := choice.following() for _ in range(3)]
    assert seen == [MonitorChoice.NARROW, MonitorChoice.OFF, MonitorChoice.WIDE]
