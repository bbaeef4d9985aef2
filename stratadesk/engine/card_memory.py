"""The memory of one loaded model on a simulated card: its arena, and what lies where in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.expert_cache import ExpertCache
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.head_store import HeadInMemory, HeadStore, HostHeadStore
from stratadesk.engine.vram.ledger import CardFigures, LedgerLine
from stratadesk.engine.vram.phase_table import VramPhase
from stratadesk.engine.vram.phases import VramMachine, VramOptions
from stratadesk.engine.vram.plan import VramPlan
from stratadesk.engine.vram.requests import RequestPlan
from stratadesk.engine.vram.resizing import Floor
from stratadesk.kernels.host.memory import HostMemory, SimulatedCard
from stratadesk.kernels.host.workspace import StackWorkspace

HEAD_TENSOR = "output.weight"


class CardMemory:
    """Arena, expert cache and phase machine of the model in `gguf`, as `plan` says.

    `poison` fills what was lent or is fresh with NaN patterns (tests, debugging). `emit` is told
    of every phase.

    Raises:
        MemoryShortageError: when the card or the machine's RAM refuses the arena.
    """

    def __init__(
        self,
        gguf: GgufFile,
        plan: VramPlan,
        emit: Callable[[VramPhase], None],
        *,
        poison: bool = False,
    ) -> None:
        machine, geometry = plan.machine, plan.geometry
        self.plan = plan
        self.card = SimulatedCard(machine.card, machine.card - machine.free_before)
        self.arena = Arena(
            HostMemory(self.card, plan.settings.block_bytes, poison=poison),
            geometry,
            capacity=_capacity(plan),
            end=plan.mapped_bytes,
            slot_limit=plan.planner.wanted,
        )
        mixtures = tuple(plan.shape.experts(plan.settings.mtp))
        self.cache = ExpertCache(
            geometry,
            max((mixture.experts for mixture in mixtures), default=0),
            max((mixture.used for mixture in mixtures), default=0),
            self.arena.slots,
        )
        self.dense, self.state, self.scratch, self.staging, self.buffers = _fixed_spans(plan)
        self.machine = VramMachine(
            self.arena,
            self.cache,
            self._head_store(gguf),
            emit,
            self._figures,
            VramOptions(
                floor=_floor(plan),
                fixed_buffers=self.buffers if self.buffers.size else None,
                fixed_parts=_lines(plan),
                reserve=plan.settings.reserve,
                recheck=poison,
            ),
        )
        self.machine.set_alias(plan.settings.alias)

    def request(self, tokens: int) -> RequestPlan:
        """How `tokens` fresh tokens are read in the arena as large, and the alias as set, now."""
        requests = self.plan.requests.with_alias(self.machine.alias)
        return requests.choose(replace(self.plan.arena, slots=self.cache.slots), tokens)

    def workspace(self, span: Span) -> StackWorkspace:
        """A stack of tensors in `span`."""
        return StackWorkspace(self.arena.view(span))

    def _head_store(self, gguf: GgufFile) -> HeadStore | None:
        if not self.plan.geometry.head.size:
            return None
        return HostHeadStore(self.arena, HeadInMemory(gguf.data(HEAD_TENSOR), gguf.check_whole))

    def _figures(self) -> CardFigures:
        outside = self.plan.machine.context
        others = max(0, self.card.others - outside)
        return CardFigures(self.card.total, self.card.free, others, min(outside, self.card.others))


def _capacity(plan: VramPlan) -> int:
    """The largest size of the arena that is of use: the whole card, or all slots asked for."""
    block = plan.settings.block_bytes
    most = -(-plan.geometry.end_of(plan.planner.wanted) // block) * block
    return max(plan.mapped_bytes, min(most, plan.machine.free_before // block * block))


def _fixed_spans(plan: VramPlan) -> tuple[Span, ...]:
    """Dense weights, KV cache and recurrent state, scratch, staging slot, fixed buffers."""
    parts = plan.parts
    sizes = (parts.dense, parts.kv + parts.state, parts.scratch, parts.staging)
    edges = [0]
    for size in (*sizes, plan.arena.fixed_buffers):
        edges.append(edges[-1] + size)
    return tuple(Span(start, end) for start, end in pairwise(edges))


def _lines(plan: VramPlan) -> tuple[LedgerLine, ...]:
    parts = plan.parts
    return (
        LedgerLine("weights", parts.dense),
        LedgerLine("KV and state", parts.kv + parts.state),
        LedgerLine("scratch", parts.scratch + parts.staging),
        LedgerLine("prompt buffers", plan.arena.fixed_buffers),
    )


def _floor(plan: VramPlan) -> Floor:
    """What resizing keeps: fixed regions and head."""
    return Floor(plan.geometry.rows_start, plan.geometry.rows_start)
