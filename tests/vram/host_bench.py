"""A real small model on a simulated card, every byte of whose memory can be looked at.

`reference` computes the same without a card: experts where the file is mapped, nothing lent.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel, ModelState
from stratadesk.engine.vram.geometry import Span
from stratadesk.engine.vram.head_store import HeadInMemory, HostHeadStore
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.phase_table import COMPUTING, HeadPlace, VramPhase
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.engine.vram.slot_states import NO_SLOT
from stratadesk.engine.vram.slot_store import ExpertPart, SlotStore
from stratadesk.units import MIB
from tests.conftest import DATA_DIR

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

DELTA_NET, EXPERTS, DENSE, TINY = (
    "qwen35moe-ud-q4k",
    "qwen3moe-iq4_xs",
    "qwen3-tied-q6_k",
    "qwen3moe-f16",
)
"""A delta net with experts and a shared one; attention with experts; a tied head; the smallest."""

CONTEXT = 256
CHUNK = 64

READ_ERROR, FLIPPED_BYTE = "read error", "flipped byte"


class WrongBytesError(AssertionError):
    """Memory does not hold what somebody could now read from it."""


class WrongLogitsError(AssertionError):
    """An answer is not the one that is computed without a card."""


def random_ids(seed: int, count: int) -> list[int]:
    """Ordinary tokens of the small models' vocabulary."""
    ids: list[int] = np.random.default_rng(seed).integers(0, 1_500, count).tolist()
    return ids


class Faults:
    """What goes wrong with the next copies, one entry each, empty for none."""

    def __init__(self) -> None:
        self.coming: list[str] = []
        self._struck = 0

    def strike(self, data: Bytes) -> Bytes:
        """`data` as it arrives."""
        fault = self.coming.pop(0) if self.coming else ""
        if fault == READ_ERROR:
            raise OSError("the disk is gone")
        if fault == FLIPPED_BYTE:
            # Never twice the same byte: a copy and what it is compared with come this way.
            self._struck += 1
            data = data.copy()
            data[self._struck * 97 % len(data)] ^= 0x10
        return data


class FaultyHead(HeadInMemory):
    """The host's copy of the head, over a road that may fail."""

    def __init__(self, data: Bytes, faults: Faults) -> None:
        super().__init__(data)
        self._bytes = data
        self._faults = faults

    def read_into(self, view: Bytes) -> None:
        np.copyto(view, self._faults.strike(self._bytes))


class FaultyExperts:
    """The host's copy of all experts, over a road that may fail."""

    def __init__(self, tier: Any, faults: Faults) -> None:
        self._tier = tier
        self._faults = faults

    def parts(self, layer: int, expert: int) -> Sequence[ExpertPart]:
        first, *rest = self._tier.parts(layer, expert)
        return [ExpertPart(first.offset, self._faults.strike(first.data)), *rest]


class HostRig:
    """A loaded model whose memory is compared, byte by byte, with what it should hold.

    `plan` are fields of `PlanSettings`. Copies of head and experts fail as `head_faults` and
    `expert_faults` say.
    """

    def __init__(
        self,
        name: str = EXPERTS,
        *,
        card: int = 8 * MIB,
        context: int = CONTEXT,
        kv: KvFormat = KvFormat.F32,
        chunk: int = 0,
        poison: bool = True,
        **plan: Any,
    ) -> None:
        self.phases: list[VramPhase] = []
        chosen = {"reserve": 0, "block_bytes": 1 << 16, "short_read": 0, **plan}
        settings = EngineSettings(
            max_context=context,
            kv_format=kv,
            chunk=chunk,
            plan=PlanSettings(**chosen),
            machine=MachineFacts(card=card, desktop=0, context=0),
            poison=poison,
        )
        path = DATA_DIR / "models" / f"{name}.gguf"
        self.model: LoadedModel = load_model(path, settings, lambda _: None, self.phases.append)
        self.memory = self.model.memory
        self.machine, self.cache, self.arena = (
            self.memory.machine,
            self.memory.cache,
            self.memory.arena,
        )
        self.plan, self.card = self.memory.plan, self.memory.card
        self.ops: Any = self.model._ops
        self.supply: Any = self.model._experts
        self.tier = self.supply._tier
        self.head_faults, self.expert_faults = Faults(), Faults()
        self._dense = self.arena.view(self.memory.dense).copy()
        self._head: Bytes | None = None
        if self.plan.geometry.head.size:
            self._head = self.model.gguf.data("output.weight")
            store = HostHeadStore(self.arena, FaultyHead(self._head, self.head_faults))
            self._overlay()._store = store
        source = FaultyExperts(self.tier, self.expert_faults)
        self.supply._store = SlotStore(self.arena, source, check_fills=poison)

    def new_state(self) -> ModelState:
        """A state in memory that holds nothing of use from before."""
        self.arena.memory.poison(self.memory.state)
        return self.model.new_state()

    def spoil_scratch(self) -> None:
        """Overwrite what no step may expect to find: decode scratch and staging slot."""
        for span in (self.memory.scratch, self.memory.staging):
            self.arena.memory.poison(span)

    def read(self, state: ModelState, ids: Sequence[int]) -> Floats:
        """Begin a request, read `ids` chunk by chunk and return the logits after the last."""
        chunk = self.model.begin_request(len(ids)).chunk
        first = (len(ids) - 1) // chunk * chunk
        for start in range(0, first, chunk):
            self.model.forward(state, ids[start : start + chunk], logits="none")
        return self.step(state, ids[first:])

    def step(self, state: ModelState, ids: Sequence[int]) -> Floats:
        """Append `ids`, all in one chunk; the logits after the last."""
        self.spoil_scratch()
        logits = self.model.forward(state, ids, logits="last")
        assert logits is not None
        return logits

    def answer(self, ids: Sequence[int], count: int) -> Floats:
        """Logits of a whole request: of the last of `ids`, then of `count` greedy tokens."""
        state = self.new_state()
        rows = [self.read(state, ids)]
        for _ in range(count):
            rows.append(self.step(state, [int(rows[-1].argmax())]))
        self.model.end_request()
        self.check()
        return np.stack(rows)

    def check(self) -> int:
        """Compare all books and bytes; return how many slots were compared."""
        self.machine.check()
        return self.check_bytes()

    def check_bytes(self) -> int:
        """Compare what may be read now with the file; return how many slots were."""
        if self.machine.state not in COMPUTING:
            return 0
        self._same("the dense weights", self.memory.dense, self._dense)
        if self._head is not None and self._overlay().head is HeadPlace.IN:
            start = self.plan.geometry.head.start
            self._same("the head", Span(start, start + self._head.size), self._head)
        resident = np.argwhere(self.cache.residency != NO_SLOT).tolist()
        for layer, expert in resident:
            self._check_slot(int(self.cache.residency[layer, expert]), layer, expert)
        return len(resident)

    def resident(self) -> list[tuple[int, int, int]]:
        """Layer, expert and slot of all experts that the map names."""
        found = np.argwhere(self.cache.residency != NO_SLOT).tolist()
        return [(lay, expert, int(self.cache.residency[lay, expert])) for lay, expert in found]

    def close(self) -> None:
        self.model.close()

    def _check_slot(self, slot: int, layer: int, expert: int) -> None:
        start = self.plan.geometry.slot(slot).start
        for part in self.tier.parts(layer, expert):
            first = start + part.offset
            self._same(f"slot {slot}", Span(first, first + part.data.size), part.data)

    def _same(self, what: str, span: Span, right: Bytes) -> None:
        if not np.array_equal(self.arena.view(span), right):
            raise WrongBytesError(f"{what} while {self.machine.state}")

    def _overlay(self) -> Any:
        return self.machine._overlay


@contextmanager
def rig(name: str = EXPERTS, **settings: Any) -> Iterator[HostRig]:
    """A rig for the `with` block."""
    made = HostRig(name, **settings)
    try:
        yield made
    finally:
        made.close()


class Reference:
    """The same model without a card."""

    def __init__(self, name: str, kv: KvFormat) -> None:
        settings = EngineSettings(max_context=1_024, kv_format=kv)
        path = DATA_DIR / "models" / f"{name}.gguf"
        self._model = load_model(path, settings, lambda _: None)
        self._answers: dict[tuple[int, ...], Floats] = {}

    def logits(self, ids: Sequence[int]) -> Floats:
        """Logits after every one of `ids`, read at once; [len(ids), vocabulary]."""
        rows = self._model.forward(self._model.new_state(), ids, logits="all")
        assert rows is not None
        return rows

    def answer(self, ids: Sequence[int], count: int) -> Floats:
        """As `HostRig.answer`."""
        key = (count, *ids)
        if key not in self._answers:
            state = self._model.new_state()
            rows = [self._model.forward(state, ids, logits="last")]
            for _ in range(count):
                assert rows[-1] is not None
                rows.append(self._model.forward(state, [int(rows[-1].argmax())], logits="last"))
            self._answers[key] = np.stack([row for row in rows if row is not None])
        return self._answers[key]


@cache
def reference(name: str, kv: KvFormat = KvFormat.F32) -> Reference:
    """The reference of a model, loaded once."""
    return Reference(name, kv)


def same_bits(found: Floats, right: Floats, what: object = "") -> None:
    """Compare logits bit by bit; they are finite."""
    if not np.array_equal(found, right):
        worst = float(np.abs(found - right).max())
        raise WrongLogitsError(f"{what}: logits differ by up to {worst:.3g}")


def lending(alias: HeadAlias = HeadAlias.ON, **more: Any) -> dict[str, Any]:
    """Settings under which every prompt takes slots, and with the alias the head."""
    return {"alias": alias, "prefill_layout": Layout.LOAN, **more}
