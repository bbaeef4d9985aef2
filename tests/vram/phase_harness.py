"""A small model's memory on a simulated card: real arena, cache, head store and machine.

Its head and experts are seeded noise, so that every byte can be told from every other; faults
can be put into each copy. `check_bytes` is the oracle: it reads the memory itself and asks
nobody's books what should be there.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stratadesk.engine.vram.arena import Allocation, Arena
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import ArenaGeometry, Span
from stratadesk.engine.vram.head_store import HeadInMemory, HostHeadStore
from stratadesk.engine.vram.ledger import CardFigures, LedgerLine
from stratadesk.engine.vram.phase_table import COMPUTING, VramPhase
from stratadesk.engine.vram.phases import VramMachine, VramOptions
from stratadesk.engine.vram.resizing import floor_of
from stratadesk.engine.vram.slot_states import NO_SLOT, Placement, PlacementKind, Reservation
from stratadesk.engine.vram.slot_store import ExpertPart, SlotStore
from stratadesk.kernels.host.memory import HostMemory, SimulatedCard

Bytes = npt.NDArray[np.uint8]

BLOCK = 1024
EXPERTS = 6
USED = 2
GEOMETRY = ArenaGeometry(fixed_bytes=1024, head_bytes=1100, slot_bytes=(256, 512, 700))
WEIGHTS = Span(0, 512)
FIXED_BUFFERS = Span(512, 1024)
CAPACITY = 16 * BLOCK
CARD = 20 * BLOCK

READ_ERROR = "read error"
FLIPPED_BYTE = "flipped byte"


class WrongBytesError(AssertionError):
    """Memory does not hold what somebody could now read from it."""


def noise(seed: int, n_bytes: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, n_bytes, dtype=np.uint8)


_WEIGHTS = noise(2, WEIGHTS.size)


class Faults:
    """What goes wrong with the next copies, one entry each."""

    def __init__(self) -> None:
        self.coming: list[str] = []

    def take(self) -> str:
        return self.coming.pop(0) if self.coming else ""


class FaultyHead(HeadInMemory):
    """The host's copy of the head, over a road that may fail."""

    def __init__(self, faults: Faults) -> None:
        self.data = noise(1, 1100)
        self.faults = faults
        self.reads = 0
        super().__init__(self.data)

    def read_into(self, view: Bytes) -> None:
        self.reads += 1
        fault = self.faults.take()
        if fault == READ_ERROR:
            raise OSError("the disk is gone")
        super().read_into(view)
        if fault == FLIPPED_BYTE:
            view[self.reads * 97 % view.size] ^= 1


class FaultyExperts:
    """The host's copy of all experts, in two parts with a gap, over a road that may fail."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.reads = 0
        self._parts = {
            (layer, expert): self._made(layer, expert)
            for layer in range(GEOMETRY.layers)
            for expert in range(EXPERTS)
        }

    def right(self, layer: int, expert: int) -> Sequence[ExpertPart]:
        return self._parts[layer, expert]

    def parts(self, layer: int, expert: int) -> Sequence[ExpertPart]:
        self.reads += 1
        fault = self.faults.take()
        if fault == READ_ERROR:
            raise OSError("the disk is gone")
        parts = self.right(layer, expert)
        if fault == FLIPPED_BYTE:
            wrong = parts[0].data.copy()
            wrong[self.reads * 31 % wrong.size] ^= 0x80
            return (replace(parts[0], data=wrong), *parts[1:])
        return parts

    @staticmethod
    def _made(layer: int, expert: int) -> Sequence[ExpertPart]:
        data = noise(100 + layer * EXPERTS + expert, GEOMETRY.slot_bytes[layer])
        return (ExpertPart(0, data[:120]), ExpertPart(128, data[128:]))


@dataclass
class Flight:
    """A background copy that has begun: half of its bytes are written."""

    reservation: Reservation


class Rig:
    """One loaded model; `card` may be shared with one loaded before."""

    def __init__(
        self,
        card: SimulatedCard | None = None,
        *,
        end: int = 10 * BLOCK,
        ranges: bool = True,
        recheck: bool = False,
        floor_slots: int = 4,
        slot_limit: int | None = None,
    ) -> None:
        self.card = card or SimulatedCard(CARD)
        self.head_faults, self.expert_faults = Faults(), Faults()
        self.head = FaultyHead(self.head_faults)
        self.experts = FaultyExperts(self.expert_faults)
        self.allocations: list[tuple[Allocation, int]] = []
        self.events: list[VramPhase] = []
        self.flights: list[Flight] = []
        self.waiting: list[Reservation] = []
        self.memory = HostMemory(self.card, BLOCK, ranges=ranges)
        self.arena = Arena(
            self.memory,
            GEOMETRY,
            capacity=CAPACITY,
            end=end,
            slot_limit=slot_limit,
            hook=lambda kind, n_bytes: self.allocations.append((kind, n_bytes)),
        )
        self.cache = ExpertCache(GEOMETRY, EXPERTS, USED, self.arena.slots)
        self.store = SlotStore(self.arena, self.experts, check_fills=True)
        self.machine = VramMachine(
            self.arena,
            self.cache,
            HostHeadStore(self.arena, self.head),
            self.events.append,
            self.figures,
            VramOptions(
                floor=floor_of(GEOMETRY, GEOMETRY.head.start, 1500, floor_slots),
                fixed_buffers=FIXED_BUFFERS,
                fixed_parts=(LedgerLine("weights", 512), LedgerLine("scratch", 512)),
                recheck=recheck,
                quiet=self.land_all,
            ),
        )

    @classmethod
    def ready(cls) -> "Rig":
        """A loaded model whose slots all hold an expert."""
        rig = cls()
        rig.load()
        rig.fill_all()
        return rig

    def figures(self) -> CardFigures:
        return CardFigures(self.card.total, self.card.free, self.card.others)

    def load(self) -> None:
        self.machine.loading()
        self.write_weights()
        self.machine.loaded()

    def write_weights(self) -> None:
        self.arena.view(WEIGHTS)[:] = _WEIGHTS
        self.head.read_into(self.arena.view(GEOMETRY.head)[: self.head.n_bytes])

    def use(self, layer: int, experts: Sequence[int]) -> tuple[Placement, ...]:
        """One decode step of one layer; misses are filled, and none is left half done."""
        self.cache.begin_step()
        placements = self.cache.resolve(layer, experts)
        fills = [place for place in placements if place.kind is PlacementKind.FILL]
        with ExitStack() as rest:
            for place in fills:
                rest.callback(self.cache.fill_failed, place)
            for place in fills:
                self.store.fill(place.slot, place.layer, place.expert)
                self.cache.filled(place)
        return placements

    def fill_all(self) -> None:
        """Make every slot HOLDING."""
        for expert in range(EXPERTS):
            for layer in range(GEOMETRY.layers):
                self.use(layer, [expert])

    def start_copy(self) -> None:
        """Let the next background copy write half of its bytes."""
        reservation = self.waiting.pop(0)
        if self.cache.begin_copy(reservation):
            start = GEOMETRY.slot(reservation.slot).start
            first = self.experts.right(reservation.layer, reservation.expert)[0]
            half = first.data.size // 2
            self.arena.view(Span(start, start + half))[:] = first.data[:half]
            self.flights.append(Flight(reservation))

    def land(self, flight: Flight) -> bool:
        """Let a background copy write the rest and report its end."""
        self.flights.remove(flight)
        committed = False
        try:
            reservation = flight.reservation
            self.store.refill(reservation.slot, reservation.layer, reservation.expert)
            committed = self.cache.commit(reservation)
        finally:
            if not committed:
                self.cache.abandon(flight.reservation)
        return committed

    def land_all(self) -> None:
        """The machine's `quiet`."""
        self.expert_faults.coming.clear()
        for flight in tuple(self.flights):
            self.land(flight)

    def check_bytes(self) -> int:
        """Compare all that may be read now with what it should be; return how many slots."""
        if self.machine.state in COMPUTING:
            self._same("the weights", WEIGHTS, _WEIGHTS)
        if self.machine.state in {"ready", "decoding"}:
            start = self.machine.head().start
            self._same("the head", Span(start, start + 1100), self.head.data)
        resident = np.argwhere(self.cache.residency != NO_SLOT).tolist()
        for layer, expert in resident:
            self._check_slot(int(self.cache.residency[layer, expert]), layer, expert)
        return len(resident)

    def _check_slot(self, slot: int, layer: int, expert: int) -> None:
        start = GEOMETRY.slot(slot).start
        for part in self.experts.right(layer, expert):
            first = start + part.offset
            self._same(f"slot {slot}", Span(first, first + part.data.size), part.data)

    def _same(self, what: str, span: Span, right: Bytes) -> None:
        if not np.array_equal(self.arena.view(span), right):
            raise WrongBytesError(f"{what} while {self.machine.state}")
