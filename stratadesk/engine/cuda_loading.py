"""Loading a model onto a graphics card: everything lies there, the embedding in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from stratadesk.engine.architectures import family
from stratadesk.engine.architectures.tensors import TensorTable
from stratadesk.engine.hyperparameters import Hyperparameters
from stratadesk.engine.vram.arena import Arena
from stratadesk.engine.vram.geometry import ArenaGeometry, aligned
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import GgufError, MemoryShortageError, UnsupportedModelError, UsageError
from stratadesk.kernels.cuda import ops as cuda
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.cubins import CubinStore, Kernels
from stratadesk.kernels.cuda.device import open_device
from stratadesk.kernels.cuda.host_copies import MappedCopy
from stratadesk.kernels.cuda.memory import CudaMemory
from stratadesk.kernels.cuda.ops_sampling import RING, DrawPlaces
from stratadesk.kernels.cuda.states import StepState
from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWeight, DeviceWorkspace
from stratadesk.paths import folders
from stratadesk.units import MIB, mib

if TYPE_CHECKING:
    from collections.abc import Callable

    from stratadesk.engine.architectures.base import Family
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.load_report import LoadReport
    from stratadesk.engine.ops import LayerState
    from stratadesk.kernels.cuda.device import Device
    from stratadesk.kernels.expert_form import ExpertForm

EMBEDDING_TENSOR, HEAD_TENSOR = "token_embd.weight", "output.weight"
BLOCK_BYTES = 32 * MIB
"""What is mapped at once; see DESIGN's arena."""

PIECE_BYTES = 64 * MIB
"""What is copied to the card at once: a tenth of a second on the slowest link."""

MOST_CONTEXT = 4_096
"""Tokens of the context where none is asked for."""

ENDLESS = 1 << 62


def card_context(gguf: GgufFile, asked: int) -> int:
    """Tokens of the context on a card: those asked for, else the model's, at most MOST_CONTEXT."""
    return asked or min(
        Hyperparameters(gguf).positive("context_length", default=MOST_CONTEXT), MOST_CONTEXT
    )


class CardLayout:
    """Weights, what outlives a step, and scratch: their sizes in bytes, one behind the other."""

    def __init__(self, weights: int, resident: int, scratch: int) -> None:
        self.weights, self.resident, self.scratch = weights, resident, scratch

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.resident + self.scratch

    @property
    def mapped(self) -> int:
        """What the card gives for it: whole blocks."""
        return -(-self.total // BLOCK_BYTES) * BLOCK_BYTES


class CudaLoader:
    """Places a file's tensors in `space` and copies them there, unless `ops` is dry.

    `uploaded` is told of the bytes on the card and of all that go there.
    """

    def __init__(
        self,
        gguf: GgufFile,
        ops: cuda.CudaOps,
        space: DeviceWorkspace,
        uploaded: Callable[[int, int], None],
    ) -> None:
        self._gguf = gguf
        self._ops = ops
        self._space = space
        self._uploaded = uploaded
        self._layers = 0
        self.placed: dict[str, int] = {}
        """Bytes of each tensor on the card."""
        self.experts = 0
        """Experts of all layers."""
        self.embedding: MappedCopy | None = None

    def load(self, name: str) -> DeviceWeight:
        """The tensor `name` as a weight, in its place."""
        info = self._gguf.tensors[name]
        columns, each = info.shape[-1], programs.values_of_a_lane(info.format.name)
        if columns % each and info.format.name in programs.FLOATS:
            raise UnsupportedModelError(
                f"Tensor {name} has rows of {columns} values in {info.format.name}; a graphics "
                f"card multiplies {each} at once.",
                "Use --device host.",
            )
        return self._placed(name)

    def _placed(self, name: str) -> DeviceWeight:
        info, data = self._gguf.tensors[name], self._gguf.data(name)
        tied = HEAD_TENSOR not in self._gguf.tensors
        if name == EMBEDDING_TENSOR and not tied:
            return self._ops.weight(self._mapped(data), info.format.name, info.shape)
        before, address = self._space.used, self._space.take(data.size)
        self.placed[name] = data.size
        if not self._ops.dry:
            self._copy(before, address, data)
        return self._ops.weight(address, info.format.name, info.shape)

    def vector(self, name: str) -> DeviceTensor:
        """A small float32 tensor, such as a norm."""
        info = self._gguf.tensors[name]
        if info.format.name != "F32":
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {info.format.name}; this version needs F32 there.",
                "Choose another conversion of the model.",
            )
        return DeviceTensor(self._placed(name).address, info.shape)

    def expert_layer(self, parts: Sequence[DeviceWeight], form: ExpertForm) -> cuda.DeviceExperts:
        """The experts of the next layer that has any."""
        self._layers += 1
        self.experts += parts[0].matrices
        return self._ops.expert_layer(self._layers - 1, parts, form)

    def head_rows(self, *_: Any, **__: Any) -> Any:
        """Refuse: no family that is computed here needs it."""
        raise UnsupportedModelError(
            "Latent attention is not computed on a graphics card.", "Use --device host."
        )

    def _copy(self, before: int, address: int, data: Any) -> None:
        """Copy piece by piece, telling how far it is: whoever is told may end the loading."""
        for first in range(0, data.size, PIECE_BYTES):
            self._uploaded(before + first, self._space.size)
            self._ops.upload(address + first, data[first : first + PIECE_BYTES])

    def _mapped(self, data: Any) -> int:
        if self._ops.dry:
            return 0
        self.embedding = MappedCopy(data)
        return self.embedding.address


class CardPlaces:
    """Where a model's weights, state and scratch lie on a card; it opens none itself.

    All of it is placed twice: by `lay_out`, dry, to know the sizes, then in an arena.

    `uploaded` is told of the bytes on the card and of all that go there.

    Raises:
        UnsupportedModelError: an architecture that is not computed on a card.
        UsageError: the block that drafts tokens is asked for.
        GgufError: there is no vocabulary.
    """

    def __init__(
        self,
        gguf: GgufFile,
        settings: EngineSettings,
        uploaded: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        if gguf.architecture not in cuda.SUPPORTED:
            raise UnsupportedModelError(
                f"{gguf.architecture} is not computed on a graphics card yet; "
                f"{', '.join(cuda.SUPPORTED)} are.",
                "Use --device host.",
            )
        if settings.mtp:
            raise no_drafts()
        self.gguf = gguf
        self._uploaded = uploaded
        self.kv_format = settings.kv_format.upper()
        self.vocab_size = len(gguf.get_strings("tokenizer.ggml.tokens"))
        if not self.vocab_size:
            raise GgufError(f"{gguf.label} has an empty vocabulary.")
        self.context = card_context(gguf, settings.max_context)
        self.rings: tuple[MappedCopy, ...] = ()

    def lay_out(self, device: Device, kernels: Kernels) -> CardLayout:
        """Place everything dry; neither `device` nor `kernels` is used.

        Raises:
            UnsupportedModelError: a tensor or an operation that is not computed on a card.
        """
        dry = cuda.CudaOps(device, kernels)
        dry.dry = True
        return self._build(dry, None)

    def _build(self, placing: cuda.CudaOps, layout: CardLayout | None, base: int = 0) -> CardLayout:
        """Place all of the model, dry and without bounds, or from `base` on as laid out."""
        ops: Any = placing
        spaces = _spaces(layout, base)
        weights, ops.resident, ops.workspace = spaces
        self.loader = CudaLoader(self.gguf, ops, weights, self._uploaded)
        table = TensorTable(self.gguf.tensors, self.loader)
        self.family: Family = family(self.gguf.architecture)(
            Hyperparameters(self.gguf), table, self.vocab_size
        )
        table.finish()
        self.step = ops.resident.tensor(2)
        self.tokens = ops.resident.tensor(cuda.MOST_TOKENS)
        ops.step = StepState(self.step.address, self.tokens.address)
        self.logits = ops.resident.tensor(cuda.MOST_TOKENS, self.vocab_size)
        self._place_draws(ops)
        before = ops.resident.used
        self.layers: Sequence[LayerState] = tuple(
            layer.mixer.new_state(ops, self.context, self.kv_format) for layer in self.family.layers
        )
        self.state_bytes = ops.resident.used - before
        ops.clear(self.step)
        ops.clear(self.tokens)
        with ops.scope():
            ids = np.zeros(cuda.MOST_TOKENS, np.int32)
            hidden = self.family.hidden(ops, ids, 0, self.layers)
            self.family.logits(ops, hidden)
        return CardLayout(*(aligned(space.peak) for space in spaces))

    def _place_draws(self, ops: cuda.CudaOps) -> None:
        """What drawing tokens needs: memory of its own, and rings that the host uses too."""
        if not ops.dry and not self.rings:
            self.rings = tuple(MappedCopy(np.zeros(8 * RING, np.uint8)) for _ in range(2))
        addresses = [ring.address for ring in self.rings] or [0, 0]
        self.draws = DrawPlaces(*map(ops.resident.take, DrawPlaces.SIZES), *addresses)


class CardContents(CardPlaces):
    """A model's weights, state and scratch on the card, and the operations that use them.

    `report` is told of the kernels and the copying, and may raise to end them.

    Raises:
        UnsupportedModelError: an architecture or tensor that is not computed on a card.
        DeviceError, MemoryShortageError: no card, or too little memory on it.
    """

    def __init__(
        self, gguf: GgufFile, settings: EngineSettings, formats: set[str], report: LoadReport
    ) -> None:
        super().__init__(gguf, settings, report.uploaded)
        self.device: Device = open_device()
        kernels = Kernels()
        store = CubinStore(folders().cache / "cubins", self.device.arch)
        wanted = programs.needed(formats, self.kv_format)
        patient = all(store.has(program) for program in wanted)
        kernels.load(wanted, store, report.kernels(patient=patient))

        self.layout = self.lay_out(self.device, kernels)
        self.ops = cuda.CudaOps(self.device, kernels)
        self.reserve = (settings.plan or PlanSettings()).reserve
        self.memory = CudaMemory(self.device, BLOCK_BYTES, poison=settings.poison)
        self.arena = self._arena(settings)
        with ExitStack() as undo:
            undo.callback(self.release)
            self._build(self.ops, self.layout, self.memory.address)
            undo.pop_all()

    def release(self) -> None:
        """Give the card's memory back."""
        with ExitStack() as undo:
            for copy in (self.loader.embedding, *self.rings):
                if copy is not None:
                    undo.callback(copy.release)
            undo.callback(self.arena.release)

    def _arena(self, settings: EngineSettings) -> Arena:
        needed, blocks = self.layout.total, self.layout.mapped
        free, reserve = self.device.free(), self.reserve
        if blocks + reserve > free:
            raise MemoryShortageError(
                f"{self.device.name} has {mib(free):,.0f} MiB free, and this model needs "
                f"{mib(blocks):,.0f} MiB with all its experts there, besides a reserve of "
                f"{mib(reserve):,.0f} MiB.",
                _remedy(free - blocks, self.state_bytes),
            )
        return Arena(self.memory, ArenaGeometry(needed, 0, ()), capacity=blocks, end=blocks)

    @property
    def experts(self) -> int:
        """Experts of all layers; each is on the card."""
        return self.loader.experts

    @property
    def shares(self) -> MappedCopy:
        """The ring of shares that draws stop at; see `DrawPlaces`."""
        return self.rings[0]

    @property
    def said(self) -> MappedCopy:
        """The ring of tokens drawn."""
        return self.rings[1]


def _spaces(layout: CardLayout | None, base: int) -> tuple[DeviceWorkspace, ...]:
    if layout is None:
        return tuple(DeviceWorkspace(0, ENDLESS) for _ in range(3))
    return (
        DeviceWorkspace(base, layout.weights),
        DeviceWorkspace(base + layout.weights, layout.resident),
        DeviceWorkspace(base + layout.weights + layout.resident, layout.scratch),
    )


def _remedy(room: int, state: int) -> str:
    """What helps when `room` bytes are free besides the model (negative: missing).

    `state` bytes of the model are KV cache and recurrent states.
    """
    lower = f"--vram-reserve-mib {room // MIB} or less, " if room >= MIB else ""
    shorter = "--max-context or " if room + state >= 0 else ""
    return f"Choose {lower}a smaller {shorter}model, or use --device host."


def no_drafts() -> UsageError:
    """Return the error for who asks a card to draft tokens."""
    return UsageError("Drafts are not computed on a graphics card yet.", "Use --device host.")
