"""What a plan needs of the machine's RAM: experts pinned and pageable, commit limit, page file."""

from dataclasses import dataclass

from stratadesk.engine.vram.geometry import ArenaGeometry
from stratadesk.engine.vram.layouts import PlannedArena
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.engine.vram.shape import ModelShape


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes. Every expert is on the host, `pinned` or `pageable`; those of slots are there too.

    Pinned are the first `pinned_experts` in the order rows first: expert 0 of all `layers`,
    then expert 1. `copies` are head and embedding, pinned before any expert. Of the experts,
    `slot` bytes fit the card.
    """

    slot: int
    pinned: int
    pageable: int
    pinned_experts: int
    layers: int
    copies: int
    budget: int

    @property
    def experts(self) -> int:
        """Bytes of all experts."""
        return self.pinned + self.pageable

    @property
    def needed(self) -> int:
        """RAM for experts, head and embedding, and a tenth more (B8)."""
        total = self.experts + self.copies
        return total + total // 10

    @property
    def pinned_share(self) -> float:
        """The share of expert bytes that is pinned, 1 without experts."""
        return self.pinned / self.experts if self.experts else 1.0

    def is_pinned(self, layer: int, expert: int) -> bool:
        """Whether `expert` of `layer` (counted among those with experts) is pinned."""
        return expert * self.layers + layer < self.pinned_experts


def host_memory(
    shape: ModelShape, machine: MachineFacts, settings: PlanSettings, arena: PlannedArena
) -> HostMemory:
    """Return where the experts of `shape` lie on the host, and how many bytes slots hold."""
    experts = tuple(shape.experts(settings.mtp))
    order = ArenaGeometry(0, 0, [moe.expert_bytes for moe in experts])
    numbers = len(experts) * max((moe.experts for moe in experts), default=0)
    copies = shape.lendable_head + shape.embedding_bytes
    budget = machine.pin_budget() if settings.pin is None else settings.pin
    pinned = min(numbers, order.slots_within(budget - copies))
    total = sum(moe.experts * moe.expert_bytes for moe in experts)
    pinned_bytes = min(total, order.end_of(pinned))
    return HostMemory(
        slot=arena.end - arena.geometry.rows_start,
        pinned=pinned_bytes,
        pageable=total - pinned_bytes,
        pinned_experts=pinned,
        layers=len(experts),
        copies=copies,
        budget=budget,
    )
