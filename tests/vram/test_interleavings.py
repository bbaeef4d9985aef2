"""Guards against a map that names a slot whose bytes are not that expert's.

Every order in which decode, copies, the refill, loans and changes of size can meet must be
harmless, also the orders that no timing on the developer's machine produces. So the shipped
functions are the steps of a model checker that looks at real bytes after each of them. That it
would notice is shown by caches in which one precaution is left out.
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from numpy.typing import NDArray

from stratadesk.engine.vram import refill
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.slot_states import NO_TICKET, Reservation, SlotState
from stratadesk.engine.vram.slot_table import Copy, SlotTable
from tests.thorough import usual
from tests.vram.cache_world import PIECES, Action, CacheWorld, WrongBytes
from tests.vram.explorer import Explored, Found, explore, played, wander

Say = Callable[[str], None]

FULL = "resolve 0 0,1; write 0; write 0; finish 0; write 0; write 0; finish 0; step;"
ROOTS = {
    "empty": "",
    "all resident": FULL,
    "two fills half done": "resolve 0 0,1; write 0; write 1",
    "a fill half done in a lent slot": "resolve 0 0,1; write 0; write 1; lend 1",
    "a fill half done in a trimmed slot": "resolve 0 0,1; write 0; write 1; trim 0",
    "refill and demand bring the same expert": (
        FULL + "lend 1; scribble; give_back None; begin; resolve 0 1; write 0; write 1; write 0"
    ),
    "a second loan during the refill": (
        FULL + "lend 2; scribble; give_back None; begin; write 0; begin; write 1; lend 1"
    ),
}


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print although output is captured: these numbers are part of the result."""

    def shown(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="")

    return shown


def small(slots: int, cache_class: type[ExpertCache] = ExpertCache) -> CacheWorld:
    return CacheWorld((256,), experts=2, slots=slots, capacity=slots, cache_class=cache_class)


def test_every_order_of_steps_with_one_slot(say: Say) -> None:
    explored = explore(small(1))
    say(f"one slot, two experts, until nothing new appears: {explored}")
    assert explored.states > 1_000


def test_every_order_of_five_steps_with_two_slots(say: Say) -> None:
    total = Explored(0, 0)
    for name, script in ROOTS.items():
        explored = explore(played(small(2), script), depth=5)
        say(f"two slots, five steps from: {name}: {explored}")
        total = Explored(total.states + explored.states, total.steps + explored.steps)
    assert total.steps > 20_000


@pytest.mark.parametrize("filter_below", [0, 3], ids=["LRU", "filtered"])
def test_long_random_orders_over_several_layers(filter_below: int, say: Say) -> None:
    total = Explored(0, 0)
    seeds = usual(2, thorough=5)
    for seed in range(seeds):
        world = CacheWorld(
            (256, 512, 256), experts=5, slots=8, capacity=11, filter_below=filter_below, lates=3
        )
        explored = wander(world, steps=2_000, seed=seed)
        total = Explored(total.states + explored.states, total.steps + explored.steps)
    say(f"three layers, five experts, up to 11 slots, at random: {total}")
    assert total.steps == 2_000 * seeds


class Interleavings(RuleBasedStateMachine):
    """Steps chosen by Hypothesis, which shortens what it finds."""

    def __init__(self, taken: list[str]) -> None:
        super().__init__()
        self.taken = taken
        self.world = CacheWorld((256, 512), experts=4, slots=5, capacity=7, filter_below=2)

    def do(self, name: str, *arguments: object) -> None:
        self.world.do(Action(name, arguments))
        self.world.verify()
        self.taken.append(name)

    @rule()
    def next_step(self) -> None:
        self.do("step")

    @rule(layer=st.integers(0, 1), window=st.sets(st.integers(0, 3), min_size=1))
    def resolve(self, layer: int, window: set[int]) -> None:
        self.do("resolve", layer, tuple(window))

    @precondition(lambda self: self.world.flights)
    @rule(pick=st.integers(0, 99))
    def move_a_copy_on(self, pick: int) -> None:
        index = pick % len(self.world.flights)
        whole = self.world.flights[index].done == PIECES
        self.do("finish" if whole else "write", index)

    @precondition(lambda self: self.world.flights)
    @rule(pick=st.integers(0, 99))
    def fail_a_copy(self, pick: int) -> None:
        self.do("fail", pick % len(self.world.flights))

    @precondition(lambda self: self.world.late)
    @rule()
    def report_late(self) -> None:
        self.do("report_late", 0)

    @precondition(lambda self: self.world.pending)
    @rule(begin=st.booleans())
    def take_a_reservation(self, begin: bool) -> None:
        self.do("begin" if begin else "skip")

    @precondition(lambda self: not self.world.cache.lent)
    @rule(share=st.integers(0, 7))
    def lend(self, share: int) -> None:
        self.do("lend", min(share, self.world.cache.slots))

    @precondition(lambda self: self.world.may_scribble)
    @rule()
    def scribble(self) -> None:
        self.do("scribble")

    @precondition(lambda self: self.world.cache.lent)
    @rule(row=st.none() | st.tuples(*[st.integers(0, 3)] * 4))
    def give_back(self, row: tuple[int, ...] | None) -> None:
        self.do("give_back", None if row is None else (row, row[::-1]))

    @rule(slots=st.integers(0, 7))
    def resize(self, slots: int) -> None:
        if slots < self.world.cache.slots:
            self.do("trim", max(slots, self.world.cache.lent))
        else:
            self.do("grow", slots)

    @precondition(lambda self: self.world.may_unmap)
    @rule()
    def unmap(self) -> None:
        self.do("unmap")

    @rule()
    def forget(self) -> None:
        self.do("forget")


def test_orders_that_hypothesis_chooses(say: Say) -> None:
    taken: list[str] = []

    def machine() -> Interleavings:
        return Interleavings(taken)

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # any factory will do
        settings=settings(
            max_examples=60,
            stateful_step_count=60,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    say(f"hypothesis: {len(taken)} steps of {len(set(taken))} kinds")
    assert len(set(taken)) > 10, "hypothesis chose too few kinds of steps to prove anything"


def hunt(*, rules: bool, waits: bool = True) -> None:
    """Look for what a careless cache does: first the shortest ways from each root, then at random.

    Raises:
        Found: something is wrong; with `rules` also if it is only one of the cache's own rules.
    """
    for name, script in ROOTS.items():
        world = CacheWorld((256,), experts=2, slots=2, capacity=2, waits=waits)
        try:
            explore(played(world, script), depth=4, rules=rules)
        except Found as found:
            raise Found(found.trace, found.why, f"from: {name}") from found
    for seed in range(10):
        world = CacheWorld((256,), experts=3, slots=2, capacity=2, waits=waits)
        wander(world, 4_000, seed, rules=rules)


Patch = pytest.MonkeyPatch


def of_layer(table: SlotTable, layer: int, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    mine = np.arange(len(chosen)) % table.layers == layer
    return np.flatnonzero(chosen & mine)


def stays_in_the_map(patch: Patch, left_out: SlotState) -> None:
    withdraw = ExpertCache._withdraw

    def careless(self: ExpertCache, slots: range, state: SlotState) -> None:
        if state is left_out:
            self._table.state[slots.start : slots.stop] = state
        else:
            withdraw(self, slots, state)

    patch.setattr(ExpertCache, "_withdraw", careless)


def lent_slots_stay_in_the_map(patch: Patch) -> None:
    stays_in_the_map(patch, SlotState.LENT)


def trimmed_slots_stay_in_the_map(patch: Patch) -> None:
    stays_in_the_map(patch, SlotState.UNMAPPED)


def replaced_experts_stay_in_the_map(patch: Patch) -> None:
    def careless(self: SlotTable, slot: int, expert: int, stamp: int) -> int:
        ticket = self._assign(slot, SlotState.FILLING, expert, stamp)
        self.coming[slot % self.layers, expert] = True
        self.writer[slot] = ticket
        return ticket

    patch.setattr(SlotTable, "start_fill", careless)


def fills_are_published_when_they_begin(patch: Patch) -> None:
    start_fill = SlotTable.start_fill

    def careless(self: SlotTable, slot: int, expert: int, stamp: int) -> int:
        ticket = start_fill(self, slot, expert, stamp)
        self.publish(slot, stamp)
        return ticket

    patch.setattr(SlotTable, "start_fill", careless)


def late_copies_are_believed(patch: Patch) -> None:
    def careless(self: SlotTable, copy: Copy, state: SlotState) -> bool:
        return bool(self.state[copy.slot] == state)

    patch.setattr(SlotTable, "is_current", careless)


def slots_of_this_step_are_replaced(patch: Patch) -> None:
    def careless(self: SlotTable, layer: int, step: int) -> NDArray[np.int64]:
        free = self.is_in(SlotState.EMPTY, SlotState.HOLDING) & (self.writer == NO_TICKET)
        return of_layer(self, layer, free)

    patch.setattr(SlotTable, "free_to_fill", careless)


def slots_still_written_to_are_filled(patch: Patch) -> None:
    def careless(self: SlotTable, layer: int, step: int) -> NDArray[np.int64]:
        old = self.is_in(SlotState.HOLDING) & (self.stamp < step)
        return of_layer(self, layer, self.is_in(SlotState.EMPTY) | old)

    patch.setattr(SlotTable, "free_to_fill", careless)


def slots_still_written_to_are_reserved(patch: Patch) -> None:
    def careless(table: SlotTable, layer: int, end: int) -> list[int]:
        return list(range(layer, end, table.layers))

    def begin_copy(self: SlotTable, copy: Copy) -> None:
        self.writer[copy.slot] = copy.ticket

    patch.setattr(refill, "_highest_first", careless)
    patch.setattr(SlotTable, "begin_copy", begin_copy)


def reserved_slots_are_filled(patch: Patch) -> None:
    def careless(self: SlotTable, layer: int, step: int) -> NDArray[np.int64]:
        old = self.is_in(SlotState.HOLDING) & (self.stamp < step)
        return of_layer(self, layer, self.is_in(SlotState.EMPTY, SlotState.RESERVED) | old)

    patch.setattr(SlotTable, "free_to_fill", careless)


@pytest.mark.parametrize(
    "mutation",
    [
        lent_slots_stay_in_the_map,
        trimmed_slots_stay_in_the_map,
        replaced_experts_stay_in_the_map,
        fills_are_published_when_they_begin,
        late_copies_are_believed,
        slots_of_this_step_are_replaced,
        slots_still_written_to_are_filled,
        slots_still_written_to_are_reserved,
        reserved_slots_are_filled,
    ],
    ids=lambda mutation: mutation.__name__,
)
def test_wrong_bytes_are_found_when_a_precaution_is_left_out(
    mutation: Callable[[Patch], None], monkeypatch: Patch, say: Say
) -> None:
    mutation(monkeypatch)
    with pytest.raises(Found) as found:
        hunt(rules=False)
    say(f"{mutation.__name__}: {found.value}")
    assert isinstance(found.value.why, WrongBytes)


def test_a_commit_without_its_check_is_found(monkeypatch: Patch, say: Say) -> None:
    """The bytes are right twice: one expert in two slots is the rule that is broken."""

    def careless(self: ExpertCache, reservation: Reservation) -> bool:
        return False

    monkeypatch.setattr(ExpertCache, "_dropped", careless)
    with pytest.raises(Found, match="are all HOLDING with expert") as found:
        hunt(rules=True)
    say(f"commit without check: {found.value}")
    assert isinstance(found.value.why, InvariantError)


def test_a_prompt_that_does_not_wait_for_copies_is_found(say: Say) -> None:
    with pytest.raises(Found) as found:
        hunt(rules=False, waits=False)
    say(f"a prompt does not wait: {found.value}")
    assert isinstance(found.value.why, WrongBytes)
