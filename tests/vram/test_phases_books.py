"""Guards against bytes of the card that nobody owns, or two do, and models of another shape."""

from collections.abc import Callable

import pytest

from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry, Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.engine.vram.ledger import CardFigures, LedgerLine, make_ledger
from stratadesk.engine.vram.phase_table import VramPhase
from stratadesk.engine.vram.phases import VramMachine
from stratadesk.engine.vram.plan_settings import Layout
from stratadesk.errors import UsageError
from stratadesk.kernels.host.memory import HostMemory, SimulatedCard
from tests.vram.phase_harness import (
    BLOCK,
    CARD,
    GEOMETRY,
    Rig,
)


@pytest.fixture
def rig() -> Rig:
    return Rig.ready()


def test_every_byte_of_the_card_has_an_owner_in_every_phase(rig: Rig) -> None:
    rig.card.others = 3 * BLOCK
    rig.machine.begin_prompt(Layout.ALIAS, 2000)
    ledger = rig.machine.ledger()
    lent = GEOMETRY.end_of(rig.cache.lent) - GEOMETRY.head.start
    assert (ledger.of("head"), ledger.of("prompt buffers")) == (0, lent)
    assert ledger.of("experts") == 10 * BLOCK - GEOMETRY.head.start - lent
    rig.machine.end_prompt()
    rig.machine.end_decode()
    for phase in rig.events:
        assert sum(line.n_bytes for line in phase.ledger.lines) + phase.ledger.free == CARD
    assert rig.events[-1].ledger.of("head") == GEOMETRY.head.size
    assert rig.events[-1].ledger.of("prompt buffers") == 0
    assert rig.events[-1].ledger.of("other programs") == 3 * BLOCK


def test_bytes_that_nobody_owns_are_found_with_all_numbers(rig: Rig) -> None:
    rig.card.take(100)
    with pytest.raises(InvariantError, match=r"weights 512 \+ .* unexplained 100 = card 20,480"):
        rig.machine.check()


def test_an_arena_resized_behind_the_machines_back_is_found(rig: Rig) -> None:
    rig.arena.resize(11 * BLOCK, 0)
    with pytest.raises(InvariantError, match="the arena ends at 11264, not where it was left"):
        rig.machine.begin_decode()


def test_other_programs_nobody_measures_are_what_is_left() -> None:
    ours = (LedgerLine("weights", 300),)
    ledger = make_ledger(CardFigures(1000, 200, None, outside=100), ours, reserve=250)
    assert (ledger.of("other programs"), ledger.unexplained, ledger.shortfall) == (400, 0, 50)
    assert not ledger.others_known
    neither = make_ledger(CardFigures(1000, 200, None, outside=None), ours, reserve=250)
    assert neither.lines == ours
    assert neither.unexplained == 500
    one = make_ledger(CardFigures(1000, 200, 350, outside=None), ours, reserve=250)
    assert (one.of("other programs"), one.unexplained) == (350, 150)
    known = make_ledger(CardFigures(1000, 200, 350, outside=100), ours, reserve=150)
    assert (known.unexplained, known.shortfall, known.others_known) == (50, 0, True)
    known.check(limit=50)
    with pytest.raises(InvariantError, match="unexplained 50"):
        known.check(limit=49)


# Models without a head to lend, or without experts


def small_machine(geometry: ArenaGeometry, emit: Callable[[VramPhase], None]) -> VramMachine:
    card = SimulatedCard(CARD)
    memory = HostMemory(card, BLOCK)
    arena = Arena(memory, geometry, capacity=8 * BLOCK, end=4 * BLOCK)
    cache = ExpertCache(geometry, 4, 2, arena.slots)
    figures = lambda: CardFigures(card.total, card.free, card.others)  # noqa: E731
    machine = VramMachine(arena, cache, None, emit, figures)
    machine.loading()
    machine.loaded()
    return machine


def test_a_head_that_is_the_embedding_is_never_lent() -> None:
    events: list[VramPhase] = []
    machine = small_machine(ArenaGeometry(512, 0, (256, 256)), events.append)
    for layout in (Layout.ALIAS, Layout.FIXED):
        with pytest.raises(UsageError, match=f"without prompt layout {layout}"):
            machine.begin_prompt(layout, 100)
    machine.begin_prompt(Layout.LOAN, 300)
    assert machine.cache.lent == 2
    assert machine.head().size == 0
    machine.end_prompt()
    machine.check()


def test_a_dense_model_has_buffers_behind_everything_else() -> None:
    events: list[VramPhase] = []
    machine = small_machine(ArenaGeometry(512, 0, ()), events.append)
    assert machine.begin_prompt(Layout.LOAN, 3000) == Span(512, 3512)
    assert events[-1].slots_lent == 0
    assert events[-1].ledger.of("prompt buffers") == 3000
    machine.end_prompt()
    machine.end_decode()
    assert machine.resize(2 * BLOCK).reached == 2 * BLOCK
    machine.check()


def test_fewer_slots_than_would_fit_leave_padding() -> None:
    rig = Rig(slot_limit=2)
    rig.load()
    assert rig.cache.slots == 2
    ledger = rig.machine.ledger()
    assert ledger.of("experts") == GEOMETRY.end_of(2) - GEOMETRY.rows_start
    assert ledger.of("padding") == 10 * BLOCK - GEOMETRY.end_of(2)
    rig.machine.begin_prompt(Layout.LOAN, 4000)
    assert rig.cache.lent == 2
    rig.machine.end_prompt()
    rig.machine.end_decode()
    assert rig.machine.resize(14 * BLOCK).slots == 2
    rig.machine.check()


def test_without_slots_prompts_still_have_their_buffers() -> None:
    rig = Rig(slot_limit=0)
    rig.load()
    for layout in Layout:
        rig.machine.begin_prompt(layout, 500)
        assert rig.events[-1].slots_lent == 0
        rig.machine.end_prompt()
        rig.check_bytes()
        rig.machine.end_decode()
    with pytest.raises(InvariantError, match="slot 0 is not the cache's"):
        rig.machine.slot(0)
