"""Guards against the one sequence of events, among very many, after which stale bytes are used.

The driver must also be worth something: with a safeguard of the product left out, it fails.
"""

from collections.abc import Callable

import pytest

from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import Overlay
from stratadesk.engine.vram.slot_store import SlotStore
from stratadesk.engine.vram.slot_table import SlotTable
from tests.vram.phase_driver import EVERYTHING, Driver
from tests.vram.phase_harness import Rig, WrongBytesError

STEPS = 5_200


@pytest.mark.parametrize("seed", range(4))
def test_no_sequence_of_events_leaves_wrong_bytes(seed: int) -> None:
    driver = Driver(seed)
    driver.run(STEPS)
    parts = ", ".join(f"{count} {name}" for name, count in sorted(driver.done.items()))
    print(f"seed {seed}: {STEPS} steps, {driver.slots_compared} slots compared; {parts}")
    assert driver.done.keys() == EVERYTHING


def lend_but_keep_in_the_map(cache: ExpertCache, count: int) -> None:
    table: SlotTable = cache._table
    table.lent = count


def trim_but_keep_in_the_map(cache: ExpertCache, slots: int) -> None:
    table: SlotTable = cache._table
    table.mapped = min(table.mapped, slots)


def let_nothing_end(_rig: Rig) -> None:
    """Return although copies are under way."""


def find_no_difference(*_: object) -> str:
    return ""


def require_nothing(*_: object) -> None:
    """Take copies under way for ended."""


LEFT_OUT: dict[str, tuple[list[tuple[object, str, Callable[..., object]]], str]] = {
    "the head's return": ([(Overlay, "_trouble_returning", find_no_difference)], "the head"),
    "the head's checksum": ([(Overlay, "_difference", find_no_difference)], "the head"),
    "lent slots leave the map": ([(ExpertCache, "lend", lend_but_keep_in_the_map)], "slot"),
    "trimmed slots leave the map": (
        [(ExpertCache, "trim", trim_but_keep_in_the_map)],
        "not within",
    ),
    "the check of copies": ([(SlotStore, "_difference", find_no_difference)], "slot"),
    "the wait for copies": (
        [
            (Rig, "land_all", let_nothing_end),
            ("stratadesk.engine.vram.overlay.require_quiet", "", require_nothing),
            ("stratadesk.engine.vram.resizing.require_quiet", "", require_nothing),
        ],
        "buffers were written to|slot",
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_safeguard_left_out_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, complaint = LEFT_OUT[what]
    for owner, name, replacement in changes:
        if isinstance(owner, str):
            monkeypatch.setattr(owner, replacement)
        else:
            monkeypatch.setattr(owner, name, replacement)
    # The cache's own check would speak first; here it is the bytes that must tell.
    monkeypatch.setattr(ExpertCache, "check", require_nothing)
    with pytest.raises((WrongBytesError, InvariantError), match=complaint):
        Driver(seed=0).run(STEPS)


def test_the_driver_is_content_with_bytes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExpertCache, "check", require_nothing)
    Driver(seed=0).run(1_000)
