"""Guards against the one sequence of events after which the engine answers from stale bytes.

The driver must also be worth something: with a safeguard of the product left out, it fails.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.overlay import HeadLostError, Overlay
from stratadesk.engine.vram.phases import VramMachine
from stratadesk.engine.vram.slot_store import CopyError
from stratadesk.engine.vram.slot_table import SlotTable
from stratadesk.kernels.host.delta_state import HostDeltaState
from tests.vram.host_bench import (
    DELTA_NET,
    TINY,
    Floats,
    WrongBytesError,
    WrongLogitsError,
)
from tests.vram.host_driver import EVERYTHING, Driver

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = {(TINY, 0): 6_350, (TINY, 1): 6_350, (TINY, 2): 6_350, (DELTA_NET, 3): 1_000}


@pytest.mark.parametrize(("name", "seed"), STEPS)
def test_no_sequence_of_events_changes_an_answer(name: str, seed: int) -> None:
    driver, steps = Driver(seed, name), STEPS[name, seed]
    driver.run(steps)
    parts = ", ".join(f"{count} {what}" for what, count in sorted(driver.done.items()))
    print(
        f"{name}, seed {seed}: {steps} steps of {sum(STEPS.values())}, "
        f"{driver.logits_compared} logits and {driver.slots_compared} slots compared; {parts}"
    )
    assert {what for what, count in driver.done.items() if count} == EVERYTHING


def bring_no_head_back(_: Overlay) -> str:
    """Say that the head is back, and look at no byte."""
    return ""


def lend_but_keep_in_the_map(cache: ExpertCache, count: int) -> None:
    table: SlotTable = cache._table
    table.lent = count


def slot_unasked(machine: VramMachine, number: int) -> Span:
    """Give out a slot, lent or not."""
    return machine.arena.geometry.slot(number)


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def require_nothing(*_: object) -> None:
    """Find all in order."""


def write_over_the_committed_side(state: HostDeltaState) -> Floats:
    memory: Floats = state.memory
    return memory


def write_history_over_the_committed_one(state: HostDeltaState, u: Floats) -> None:
    history, past = state.history, state.history.shape[0]
    rows = np.concatenate([history, u])[-past:]
    history[:] = rows


ONE_SIDE = (
    (HostDeltaState, "next_memory", property(write_over_the_committed_side)),
    (HostDeltaState, "write_history", write_history_over_the_committed_one),
    (HostDeltaState, "commit", require_nothing),
)
LENT_IN_MAP = (ExpertCache, "lend", lend_but_keep_in_the_map)
LAPSED_COPIES = (SlotTable, "is_current", always)
HEAD_STAYS_OUT = (Overlay, "_trouble_returning", bring_no_head_back)

Changes = Sequence[tuple[object, str, object]]

WRONG_ANSWER: dict[str, tuple[str, Changes]] = {
    "the head's return": (TINY, [HEAD_STAYS_OUT]),
    "the invalidation of lent slots": (TINY, [LENT_IN_MAP, (VramMachine, "slot", slot_unasked)]),
    "the commit check": (TINY, [LAPSED_COPIES]),
    "the state's double buffer": (DELTA_NET, ONE_SIDE),
}
"""What gives a user another answer, where nothing but answers is looked at."""

NOTICED: dict[str, tuple[str, Changes, str]] = {
    "the head's return": (TINY, [HEAD_STAYS_OUT], "head"),
    "the invalidation of lent slots": (TINY, [LENT_IN_MAP], "slot"),
    "the commit check": (TINY, [LAPSED_COPIES], "slot|copy|Expert"),
    "the check for an expert that came in meanwhile": (
        TINY,
        [(ExpertCache, "_dropped", never)],
        "are all HOLDING",
    ),
    "the state's double buffer": (DELTA_NET, ONE_SIDE, "logits differ"),
}
"""What the product's own checks, or the driver's, find before that."""


def leave_out(changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, replacement in changes:
        monkeypatch.setattr(owner, name, replacement)


def complaint(name: str, seed: int) -> Exception:
    """What the driver that trusts finds wrong."""
    with pytest.raises((WrongLogitsError, InvariantError, HeadLostError)) as found:
        Driver(seed, name, trusting=True).run(3_000)
    return found.value


@pytest.mark.parametrize("what", WRONG_ANSWER)
def test_a_safeguard_left_out_gives_wrong_answers(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, changes = WRONG_ANSWER[what]
    leave_out(changes, monkeypatch)
    monkeypatch.setattr(ExpertCache, "check", require_nothing)
    found = (complaint(name, seed) for seed in range(6))
    wrong = next(error for error in found if isinstance(error, WrongLogitsError))
    print(f"without {what}: {wrong}")


@pytest.mark.parametrize("what", NOTICED)
def test_a_safeguard_left_out_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changes, complaint = NOTICED[what]
    leave_out(changes, monkeypatch)
    noticed = (WrongBytesError, WrongLogitsError, InvariantError, HeadLostError, CopyError)
    with pytest.raises(noticed, match=complaint) as found:
        Driver(0, name).run(3_000)
    print(f"without {what}: {found.type.__name__}: {found.value}")


@pytest.mark.parametrize(("name", "steps"), [(TINY, 1_000), (DELTA_NET, 200)])
def test_answers_alone_are_right_too(
    name: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every safeguard in place the driver that trusts has nothing to complain of."""
    monkeypatch.setattr(ExpertCache, "check", require_nothing)
    driver = Driver(0, name, trusting=True)
    driver.run(steps)
    assert driver.logits_compared > steps / 5
