"""Guards against a reserve that is only promised: kept in the plan, missing on the card.

Between planning and the last byte loaded, a desktop may take 600 MiB. What counts is what is
free afterwards. And a region that grew a second after it shrank would hand memory to and fro.
"""

from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratadesk.engine.vram.capacity_rule import COOLDOWN_S, GROW_AFTER_S, CapacityRule
from stratadesk.engine.vram.give_back import (
    GivenBack,
    keep_reserve,
    shortage,
    slots_to_give_back,
)
from stratadesk.engine.vram.live_reader import simulated_reader
from stratadesk.engine.vram.states import MemoryWatch
from stratadesk.kernels.host.memory import SimulatedCard
from stratadesk.units import MIB
from tests.vram.probe_helpers import RESERVE, reading

BLOCK = 32 * MIB


def test_a_known_shortage_is_made_good_and_an_unknown_one_is_not_guessed() -> None:
    assert slots_to_give_back(reading(0, 590), RESERVE, repeat(MIB, 9)) == 0
    assert slots_to_give_back(reading(0, 589.5), RESERVE, repeat(MIB, 9)) == 1
    assert slots_to_give_back(reading(0, 588), RESERVE, repeat(MIB, 9)) == 2
    assert slots_to_give_back(reading(0, 0), RESERVE, repeat(MIB, 9)) == 9
    assert slots_to_give_back(reading(0, None), RESERVE, repeat(MIB, 9)) is None
    assert shortage(reading(0, None), RESERVE) is None


@given(st.integers(0, 900), st.integers(0, 900), st.lists(st.integers(1, 90), max_size=40))
def test_the_fewest_slots_that_make_it_good(free: int, reserve: int, sizes: list[int]) -> None:
    slots = slots_to_give_back(reading(0, free), reserve * MIB, [size * MIB for size in sizes])
    assert slots is not None
    given_back = sum(sizes[:slots])
    assert free + given_back >= reserve or slots == len(sizes)
    assert slots == 0 or free + given_back - sizes[slots - 1] < reserve


class Engine:
    """Holds blocks of a simulated card, each with 20 slots; a desktop takes what it likes."""

    def __init__(self, blocks: int) -> None:
        self.card = SimulatedCard(8151 * MIB, others=700 * MIB)
        self.card.take(blocks * BLOCK)
        self.blocks = blocks
        self.reader = simulated_reader(lambda: (self.card.free, self.card.total))
        self.grows: list[int] = []

    def release(self, n_bytes: int) -> int:
        blocks = min(self.blocks, -(-n_bytes // BLOCK))
        self.blocks -= blocks
        self.card.ours -= blocks * BLOCK
        if self.grows:
            self.card.others += self.grows.pop(0)
        return blocks * 20

    def keep(self, reserve: int = RESERVE) -> GivenBack:
        return keep_reserve(lambda: self.reader.read(0), reserve, self.release)


def test_a_desktop_that_grows_while_loading_does_not_take_the_reserve() -> None:
    engine = Engine(blocks=214)
    assert engine.card.free >= RESERVE
    engine.card.others += 600 * MIB
    result = engine.keep()
    assert engine.card.free >= RESERVE
    assert (result.reached, result.slots) == (True, 19 * 20)
    assert result.sentence == (
        "Free video memory 3 → 611 MiB, reserve 590 MiB: 380 slots given back."
    )


def test_a_desktop_that_goes_on_growing_is_followed() -> None:
    engine = Engine(blocks=200)
    engine.card.others += 600 * MIB
    engine.grows = [200 * MIB, 100 * MIB, 0]
    assert engine.keep().reached
    assert engine.card.free >= RESERVE


def test_what_cannot_be_reached_is_said() -> None:
    engine = Engine(blocks=2)
    engine.card.others = 8000 * MIB
    result = engine.keep()
    assert not result.reached
    assert result.slots == 40
    assert result.sentence.endswith("40 slots given back; the reserve is not reached.")


def test_an_unknown_figure_gives_nothing_back() -> None:
    result = keep_reserve(lambda: reading(0, None), RESERVE, lambda n_bytes: 1)
    assert (result.slots, result.reached) == (0, False)
    assert "not known" in result.sentence


# --- while running -----------------------------------------------------------------------


class Advised:
    """Pushes samples and collects the advice."""

    def __init__(self) -> None:
        self.watch = MemoryWatch(RESERVE)
        self.rule = CapacityRule(BLOCK)

    def at(self, seconds: float, free_mib: float | None) -> int:
        return self.rule.advise(self.watch.push(reading(seconds, free_mib)))


@pytest.fixture
def advised() -> Advised:
    return Advised()


def test_pressure_acts_at_once_in_whole_blocks(advised: Advised) -> None:
    assert advised.at(0, 590) == 0
    assert advised.at(0.5, 589) == -BLOCK
    assert advised.at(1.0, 0) == -19 * BLOCK


def test_growth_waits_for_ten_seconds_of_room_and_takes_the_smallest(advised: Advised) -> None:
    seen = [advised.at(second, 800 if second == 4 else 1000) for second in range(11)]
    assert seen == [0] * 10 + [(800 - 590) // 32 * BLOCK]
    assert GROW_AFTER_S == 10


@pytest.mark.parametrize("dip", [600, 500, None])
def test_growth_waits_anew_after_a_dip(advised: Advised, dip: float | None) -> None:
    for second in range(6):
        advised.at(second, 1000)
    advised.at(6, dip)
    assert [advised.at(second, 1000) for second in range(7, 17)] == [0] * 10
    assert advised.at(17, 1000) == 12 * BLOCK


def test_nothing_grows_soon_after_a_change_but_pressure_still_acts(advised: Advised) -> None:
    advised.rule.changed(0)
    assert [advised.at(second, 1000) for second in range(1, 30)] == [0] * 29
    assert advised.at(COOLDOWN_S, 1000) > 0
    advised.rule.changed(COOLDOWN_S)
    assert advised.at(COOLDOWN_S, 100) == 0
    assert advised.at(COOLDOWN_S + 0.5, 100) == -16 * BLOCK


def test_unknown_and_lost_figures_advise_nothing(advised: Advised) -> None:
    advised.at(0, 100)
    assert advised.at(1, None) == 0
    assert advised.rule.advise(advised.watch.status(60)) == 0
    assert CapacityRule(BLOCK).advise(MemoryWatch(RESERVE).status(0)) == 0
