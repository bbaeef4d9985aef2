"""A made-up laptop card that keeps honest books, for the scripted part of the demo.

Sizes are those of a 35B-A3B model in IQ4_XS on a card of 8,151 MiB (`docs/DETAILS.md`). Which
state the memory is in is decided by the engine's own state machine.
"""

from dataclasses import dataclass, field

from stratadesk.engine.card_events import CacheSample, CardSettings, ReservePreviewed
from stratadesk.engine.events import ReserveApplied, VramSample
from stratadesk.engine.vram.driver_model import DriverModel
from stratadesk.engine.vram.ledger import CardFigures, Ledger, LedgerLine, make_ledger
from stratadesk.engine.vram.phase_table import HeadPlace, VramPhase, VramState
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout
from stratadesk.engine.vram.readings import CardFigure, Growth, MemoryReading, Source
from stratadesk.engine.vram.states import MemoryWatch
from stratadesk.units import MIB

CARD, STEP, LEAST = 8151 * MIB, 64 * MIB, 128
EXPERT, EXPERTS, PINNED = 1_671_168, 10_240, 7_800
WEIGHTS, KV, SCRATCH, HEAD, CONTEXT = 1_232 * MIB, 766 * MIB, 60 * MIB, 333 * MIB, 300 * MIB
UNEXPLAINED = 9 * MIB
BROWSER = "chrome.exe"


@dataclass
class Laptop:
    """The card as it is now. `others` is what other programs hold, in bytes."""

    slots: int = 2_616
    lent: int = 0
    reserved: int = 0
    refilled: int = 0
    head: HeadPlace = HeadPlace.IN
    layout: Layout | None = None
    return_s: float = 0.0
    others: int = 0
    grew: Growth | None = None
    reserve: int = 590 * MIB
    alias: HeadAlias = HeadAlias.AUTO
    watch: MemoryWatch = field(default_factory=lambda: MemoryWatch(590 * MIB))

    def __post_init__(self) -> None:
        self.others = CARD - self._ours() - UNEXPLAINED - self.reserve

    @property
    def free(self) -> int:
        """Bytes that nobody holds."""
        return max(CARD - self._ours() - UNEXPLAINED - self.others, 0)

    @property
    def settings(self) -> CardSettings:
        """What is set."""
        return CardSettings(self.alias, self.alias, self.reserve, STEP, -(-STEP // EXPERT))

    def browser_takes(self, n_bytes: int) -> None:
        """Another program grows; it gets no more than there is."""
        taken = min(n_bytes, self.free)
        self.others += taken
        self.grew = Growth(BROWSER, 4242, taken)

    def ledger(self) -> Ledger:
        """The books: they add up to the card but for what is said to be unexplained."""
        head_lent = HEAD if self.head is not HeadPlace.IN else 0
        lines = (
            LedgerLine("weights", WEIGHTS),
            LedgerLine("KV and state", KV),
            LedgerLine("scratch", SCRATCH),
            LedgerLine("head", HEAD - head_lent),
            LedgerLine("experts", (self.slots - self.lent) * EXPERT),
            LedgerLine("prompt buffers", self.lent * EXPERT + head_lent),
        )
        return make_ledger(CardFigures(CARD, self.free, self.others, CONTEXT), lines, self.reserve)

    def sample(self, at: float) -> VramSample:
        """Take a sample of free memory at `at` seconds."""
        own = self._ours()
        reading = MemoryReading(
            at,
            DriverModel.WDDM,
            (
                CardFigure(Source.CUDA, CARD, self.free),
                CardFigure(Source.NVML, CARD, self.free),
                CardFigure(Source.DXGI, CARD, budget=own + self.free, own=own),
            ),
            grew=self.grew,
        )
        self.watch.reserve = self.reserve
        return VramSample(self.watch.push(reading), self.ledger())

    def phase(self, state: VramState, at: float) -> VramPhase:
        """Tell a phase of the memory."""
        out = self.head is not HeadPlace.IN
        return VramPhase(
            state=state,
            at=at,
            layout=self.layout,
            bytes_lent=self.lent * EXPERT + (HEAD if out else 0),
            slots_lent=self.lent,
            head=self.head,
            head_bytes=HEAD,
            return_s=self.return_s,
            arena_end=self._ours() - CONTEXT,
            ledger=self.ledger(),
        )

    def cache(self, at: float, hits: tuple[int, int, int, int] | None = None) -> CacheSample:
        """Tell what the slots hold; `hits` are hits and misses of window and answer."""
        window_hits, window_misses, answer_hits, answer_misses = hits or (0, 0, 0, 0)
        return CacheSample(
            at=at,
            slots=self.slots,
            holding=self.slots - self.lent - self.reserved,
            filling=0,
            empty=0,
            lent=self.lent,
            reserved=self.reserved,
            window_s=0.5,
            window_hits=window_hits,
            window_misses=window_misses,
            answer_hits=answer_hits,
            answer_misses=answer_misses,
            refilled=self.refilled,
            pinned=PINNED,
            pinned_bytes=PINNED * EXPERT,
            pageable=EXPERTS - PINNED,
            pageable_bytes=(EXPERTS - PINNED) * EXPERT,
            link_bytes=window_misses * EXPERT if hits else None,
        )

    def preview(self, reserve: int) -> ReservePreviewed:
        """Tell what a reserve would do."""
        slots = self._slots_for(reserve)
        return ReservePreviewed(
            before=self.reserve,
            reserve=reserve,
            slots_before=self.slots,
            slots=slots,
            free=self.free + (self.slots - slots) * EXPERT,
            waits=bool(self.lent),
        )

    def keep_reserve(self, reason: str = "") -> ReserveApplied:
        """Give slots back, or take some, until the reserve is free; not while slots are lent."""
        if not self.lent:
            self.slots = self._slots_for(self.reserve)
        waits = "it waits until the prompt is read and the slots lent to it are refilled"
        return ReserveApplied(
            self.reserve,
            self.free,
            self.slots,
            done=not self.lent,
            limitation=waits if self.lent else "",
            reason=reason,
        )

    def _slots_for(self, reserve: int) -> int:
        """Whole slots: so many more or fewer that at least the reserve is free."""
        room = self.free - reserve
        return min(max(self.slots + room // EXPERT, LEAST), EXPERTS)

    def _ours(self) -> int:
        return WEIGHTS + KV + SCRATCH + HEAD + CONTEXT + self.slots * EXPERT
