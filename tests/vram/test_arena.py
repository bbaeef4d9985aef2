"""Guards against an arena whose books differ from the card's: half a growth, a lost block.

And against memory that happens to hold yesterday's bytes, in which a missing copy goes unseen.
"""

import mmap

import numpy as np
import pytest

from stratadesk.engine.vram.arena import Allocation, Arena
from stratadesk.engine.vram.geometry import ArenaGeometry, Span
from stratadesk.engine.vram.invariants import InvariantError
from stratadesk.errors import DeviceError, MemoryShortageError
from stratadesk.kernels.host.memory import POISON, HostMemory, SimulatedCard

BLOCK = 1024
GEOMETRY = ArenaGeometry(fixed_bytes=512, head_bytes=1024, slot_bytes=(256, 512))


class Books:
    """What the allocation hook has been told."""

    def __init__(self) -> None:
        self.entries: list[tuple[Allocation, int]] = []

    def __call__(self, kind: Allocation, n_bytes: int) -> None:
        self.entries.append((kind, n_bytes))

    @property
    def held(self) -> int:
        taken = {Allocation.MAPPED, Allocation.ALLOCATED}
        return sum(n if kind in taken else -n for kind, n in self.entries)


@pytest.fixture
def card() -> SimulatedCard:
    return SimulatedCard(total=16 * BLOCK)


@pytest.fixture
def books() -> Books:
    return Books()


def open_arena(
    card: SimulatedCard,
    books: Books,
    end: int = 4 * BLOCK,
    capacity: int = 12 * BLOCK,
    **options: bool,
) -> Arena:
    memory = HostMemory(card, BLOCK, **options)
    return Arena(memory, GEOMETRY, capacity=capacity, end=end, hook=books)


def test_it_holds_whole_blocks_and_no_more_than_it_was_told(
    card: SimulatedCard, books: Books
) -> None:
    arena = open_arena(card, books, end=4 * BLOCK + 700, capacity=8 * BLOCK + 5)
    assert arena.end == card.ours == books.held == 4 * BLOCK
    assert arena.capacity == 8 * BLOCK
    assert arena.slots == GEOMETRY.slots_within(4 * BLOCK)


def test_fixed_regions_and_head_are_always_wholly_mapped(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books, end=0)
    assert arena.end == 2 * BLOCK
    assert arena.end >= GEOMETRY.rows_start


def test_only_the_tail_moves(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books)
    address = arena.memory.address
    arena.view(Span(0, 3 * BLOCK))[:] = 7
    assert arena.resize(6 * BLOCK + 100, 0) == 6 * BLOCK
    assert arena.resize(3 * BLOCK + 900, 0) == 3 * BLOCK
    assert arena.resize(5 * BLOCK, 0) == 5 * BLOCK
    assert (arena.view(Span(0, 3 * BLOCK)) == 7).all()
    assert arena.memory.address == address
    assert arena.end == card.ours == books.held


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_bytes_nobody_wrote_are_not_numbers(
    card: SimulatedCard, books: Books, kind: type[np.floating]
) -> None:
    arena = open_arena(card, books)
    everything = arena.view(Span(0, arena.end))
    assert np.isnan(everything.view(kind)).all()
    everything[:] = 0
    arena.resize(3 * BLOCK, 0)
    assert (everything[3 * BLOCK :] == POISON).all(), "an unmapped block kept its bytes"
    arena.resize(4 * BLOCK, 0)
    assert np.isnan(arena.view(Span(3 * BLOCK, 4 * BLOCK)).view(kind)).all()


def test_a_refused_block_leaves_the_old_size(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books)
    arena.view(Span(0, arena.end))[:] = 7
    card.refuse_after = 2
    with pytest.raises(MemoryShortageError, match=r"refused 1\.0 KiB"):
        arena.resize(8 * BLOCK, 0)
    assert arena.end == card.ours == books.held == 4 * BLOCK
    assert (arena.view(Span(0, arena.end)) == 7).all()
    card.refuse_after = None
    assert arena.resize(8 * BLOCK, 0) == 8 * BLOCK


def test_a_card_filled_by_other_programs_leaves_the_old_size(
    card: SimulatedCard, books: Books
) -> None:
    arena = open_arena(card, books)
    card.others = 10 * BLOCK
    with pytest.raises(MemoryShortageError, match=r"; 0 B of its 16\.0 KiB are free"):
        arena.resize(7 * BLOCK, 0)
    assert arena.end == card.ours == 4 * BLOCK


def test_nothing_below_the_floor_is_unmapped(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books)
    assert arena.target(0, 2 * BLOCK + 1) == 3 * BLOCK
    assert arena.resize(0, 2 * BLOCK + 1) == arena.end == 3 * BLOCK


def test_it_never_grows_beyond_its_range(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books)
    assert arena.resize(15 * BLOCK, 0) == 12 * BLOCK


def test_without_ranges_it_is_one_allocation_of_one_size(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books, end=4 * BLOCK + 100, ranges=False)
    assert books.entries == [(Allocation.ALLOCATED, 4 * BLOCK + 100)]
    assert not arena.elastic
    assert arena.end == arena.capacity == card.ours == 4 * BLOCK + 100
    with pytest.raises(DeviceError, match="fixed until the model is loaded again") as refused:
        arena.resize(2 * BLOCK, 0)
    assert "reserves no address ranges" in refused.value.sentence
    assert refused.value.remedy == "Load the model again to apply it."
    arena.view(Span(0, arena.end))[:] = 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_card_too_full_at_the_start_is_left_as_it_was(
    card: SimulatedCard, books: Books, ranges: bool
) -> None:
    card.others = 13 * BLOCK
    with pytest.raises(MemoryShortageError):
        open_arena(card, books, ranges=ranges)
    assert card.ours == books.held == 0


@pytest.mark.parametrize("ranges", [True, False])
def test_release_gives_everything_back(card: SimulatedCard, books: Books, ranges: bool) -> None:
    arena = open_arena(card, books, ranges=ranges)
    arena.release()
    assert arena.end == card.ours == books.held == 0
    arena.release()
    assert books.held == 0


def test_what_is_not_mapped_cannot_be_seen(card: SimulatedCard, books: Books) -> None:
    arena = open_arena(card, books)
    with pytest.raises(InvariantError, match="not within the 4096 mapped bytes"):
        arena.view(Span(4 * BLOCK - 1, 4 * BLOCK + 1))
    with pytest.raises(ValueError, match="not all mapped"):
        arena.memory.view(Span(4 * BLOCK - 1, 4 * BLOCK + 1))


def test_a_block_is_mapped_once_and_unmapped_once(card: SimulatedCard) -> None:
    memory = HostMemory(card, BLOCK)
    memory.reserve(2 * BLOCK)
    memory.map_block(1)
    for index in (1, 2):
        with pytest.raises(ValueError, match="cannot be mapped"):
            memory.map_block(index)
    with pytest.raises(ValueError, match="is not mapped"):
        memory.unmap_block(0)
    assert card.ours == BLOCK


def test_unpoisoned_memory_goes_back_to_the_operating_system() -> None:
    card = SimulatedCard(4 * mmap.PAGESIZE)
    memory = HostMemory(card, mmap.PAGESIZE, poison=False)
    memory.reserve(4 * mmap.PAGESIZE)
    memory.map_block(0)
    memory.view(Span(0, mmap.PAGESIZE))[:] = 5
    memory.poison(Span(0, mmap.PAGESIZE))
    assert (memory.view(Span(0, mmap.PAGESIZE)) == 5).all()
    memory.unmap_block(0)
    memory.map_block(0)
    if hasattr(mmap, "MADV_DONTNEED"):
        assert (memory.view(Span(0, mmap.PAGESIZE)) == 0).all()
    assert card.ours == mmap.PAGESIZE


def test_other_programs_take_only_what_is_free(card: SimulatedCard) -> None:
    card.take(10 * BLOCK)
    card.others = 9 * BLOCK
    assert (card.others, card.free) == (6 * BLOCK, 0)
    card.others = -1
    assert (card.others, card.free) == (0, 6 * BLOCK)
