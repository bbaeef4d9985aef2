"""Guards against a plan that pins or counts on more of the host's memory than there is."""

from dataclasses import replace

import pytest

from stratadesk.engine.vram.machine_facts import MachineFacts, System
from stratadesk.engine.vram.plan_settings import PIN_ALL
from stratadesk.engine.vram.shape import (
    ModelShape,
)
from stratadesk.units import GIB
from tests.vram.plan_models import plan_of, tiny_moe


@pytest.mark.parametrize(
    ("machine", "budget"),
    [
        (MachineFacts(ram=20 * GIB), 16 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS), 8 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WSL, commit=10 * GIB), 6 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS, pin_probe=3 * GIB), 3 * GIB),
        (MachineFacts(ram=20 * GIB, system=System.WINDOWS, commit=2 * GIB), 0),
    ],
)
def test_pinning_keeps_to_its_budget(machine: MachineFacts, budget: int) -> None:
    assert machine.pin_budget() == budget


def test_pinned_and_pageable_are_all_experts_rows_first(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(system=System.WINDOWS, ram=32 * GIB))
    host = plan.host
    assert host.pinned + host.pageable == 10_240 * 1_671_168
    budget = 32 * GIB * 4 // 10 - 2 * 349_634_560
    assert host.pinned_experts == budget // 1_671_168
    assert host.pinned == host.pinned_experts * 1_671_168
    last_row, layer = divmod(host.pinned_experts, 40)
    assert host.is_pinned(39, last_row - 1)
    assert host.is_pinned(layer - 1, last_row) is (layer > 0)
    assert not host.is_pinned(layer, last_row)


def test_pageable_experts_come_slower(shape_35b: ModelShape) -> None:
    pinned = plan_of(shape_35b, short_read=0).request(512)
    paged = plan_of(shape_35b, short_read=0, pin=0).request(512)
    ratio = paged.reading.link / pinned.reading.link
    assert ratio == pytest.approx(12.5 / 8.2, rel=0.02)


def test_ram_must_hold_the_experts_and_a_tenth_more(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(ram=16 * GIB))
    assert "of RAM short" in plan.problems[0].sentence
    assert plan.refused
    assert not plan_of(shape_35b, MachineFacts(ram=16 * GIB), force=True).refused
    assert plan_of(shape_35b, MachineFacts(ram=19 * GIB)).problems == ()


def test_a_small_page_file_is_warned_of_and_the_setting_named(shape_35b: ModelShape) -> None:
    machine = MachineFacts(system=System.WINDOWS, commit=34 * GIB)
    plan = plan_of(shape_35b, machine)
    assert not plan.refused
    (warning,) = plan.problems
    assert "page file is 2,048 MiB" in warning.sentence
    assert "Virtual memory" in warning.remedy
    assert "page file" in plan.as_text()
    assert plan_of(shape_35b, replace(machine, commit=40 * GIB)).problems == ()


def test_pinning_more_than_can_be_asked_for_is_warned_of(shape_35b: ModelShape) -> None:
    plan = plan_of(shape_35b, MachineFacts(system=System.WINDOWS), pin=PIN_ALL)
    assert "--pin-gib all" in plan.problems[0].sentence
    assert plan.host.pageable == 0
    assert not plan.refused


def test_a_context_beyond_the_models_is_warned_of() -> None:
    plan = plan_of(tiny_moe(context=2048), max_context=4096)
    assert "more than the model's 2,048" in plan.problems[0].sentence
    assert not plan.refused
