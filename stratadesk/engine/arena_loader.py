"""Bringing a file's tensors to where they are computed: arena, head region, or host tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stratadesk.engine.card_memory import HEAD_TENSOR, CardMemory
from stratadesk.engine.expert_supply import HostExperts
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.vram.geometry import Span
from stratadesk.errors import UnsupportedModelError

if TYPE_CHECKING:
    from stratadesk.engine.ops import ExpertLayer, Tensor, Weight
    from stratadesk.kernels.expert_form import ExpertForm
    from stratadesk.kernels.host.backend import HostOps

EMBEDDING_TENSOR = "token_embd.weight"
DRAFT_EMBEDDING = "nextn.embed_tokens.weight"
NGRAM_TABLE = "per_layer_token_embd.weight"


class ArenaLoader:
    """Copies dense weights into the arena and the head into its region; `tier` gets the experts.

    The embedding stays in the mapped file unless it is also the head. `copied` is told after each
    tensor how many bytes of how many are in their places; it may raise to end the loading.
    """

    def __init__(
        self,
        gguf: GgufFile,
        ops: HostOps,
        memory: CardMemory,
        copied: Callable[[int, int], None],
    ) -> None:
        self._copied = copied
        self._done = 0
        self._total = memory.dense.size + memory.plan.geometry.head.size
        self._gguf = gguf
        self._ops = ops
        self._memory = memory
        self._dense = memory.workspace(memory.dense)
        self.tier = HostExperts()

    def load(self, name: str) -> Weight:
        """The tensor `name` as a weight, in its place."""
        info, data = self._gguf.tensors[name], self._gguf.data(name)
        on_host = name.endswith(("_exps.weight", DRAFT_EMBEDDING, NGRAM_TABLE))
        on_host |= name == EMBEDDING_TENSOR and not self._memory.plan.shape.tied
        if not on_host:
            target = self._place(name, data.size)
            target[:] = data
            data = target
            self._count(data.size)
        return self._ops.weight(data, info.format.name, info.shape)

    def vector(self, name: str) -> Tensor:
        """A small float32 tensor, such as a norm, in the arena."""
        info = self._gguf.tensors[name]
        if info.format.name != "F32":
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {info.format.name}; this version needs F32 there.",
                "Choose another conversion of the model.",
            )
        weight = self._ops.weight(self._gguf.data(name), "F32", info.shape)
        self._ops.resident = self._dense
        tensor = self._ops.dense(weight)
        self._count(info.n_bytes)
        return tensor

    def expert_layer(self, parts: Sequence[Weight], form: ExpertForm) -> ExpertLayer:
        """The experts of the next layer that has any."""
        layer = self._ops.expert_layer(len(self.tier.layers), parts, form)
        self.tier.add(layer)
        return layer

    def head_rows(
        self, weight: Weight, heads: int, first: int, rows: int, *, transposed: bool
    ) -> Tensor:
        """Each head's rows of a weight."""
        return self._ops.head_rows(weight, heads, first, rows, transposed=transposed)

    def _count(self, size: int) -> None:
        self._done += size
        self._copied(self._done, self._total)

    def _place(self, name: str, size: int) -> Tensor:
        if name == HEAD_TENSOR:
            start = self._memory.plan.geometry.head.start
            return self._memory.arena.view(Span(start, start + size))
        return self._dense.empty((size,), "uint8")
