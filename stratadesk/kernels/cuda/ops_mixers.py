"""CUDA operations of attention over a KV cache."""

from dataclasses import dataclass
from typing import Any

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import THREADS, WARP, OpsBase, blocks
from stratadesk.kernels.cuda.programs import Program
from stratadesk.kernels.cuda.states import CudaKvCache
from stratadesk.kernels.cuda.tensors import DeviceTensor
from stratadesk.kernels.heads_form import HeadsForm

HEADS_AT_ONCE = 8
"""Query heads that a block of the attention kernel takes."""

SPLIT_GROUPS, JOINED = 8, 32
"""Threads for each place where spans are joined, and places of a block."""

HEAD_SIZES = (64, 128, 256)
"""What kernels are made for."""


@dataclass(frozen=True, slots=True)
class DeviceRope:
    """Cosine and sine [T, pairs]."""

    cos: DeviceTensor
    sin: DeviceTensor


@dataclass(slots=True)
class _Combination:
    """The spans of an attention that are still to be joined, and a gate if one came."""

    ops: "MixerOps"
    program: Program
    sums: DeviceTensor
    maxima: DeviceTensor
    sinks: DeviceTensor | None
    out: DeviceTensor
    window: int
    cache: CudaKvCache
    heads: int
    gate: DeviceTensor | None = None

    def launch(self) -> None:
        """Join them."""
        tokens, size = self.out.shape[0], self.out.shape[1] // self.heads
        self.ops._launch(
            self.program,
            "combine",
            (self.heads, tokens, size // JOINED),
            SPLIT_GROUPS * JOINED,
            *(self.sums, self.maxima, self.sinks or 0, self.gate or 0, self.ops.step.position),
            *(self.out, self.out.fixed, self.cache.splits, size, self.window),
        )


@dataclass(slots=True)
class _Heads:
    """Queries and keys that are still to be normed and rotated, and perhaps stored."""

    ops: "MixerOps"
    raw: tuple[DeviceTensor, DeviceTensor]
    form: HeadsForm
    norms: tuple[DeviceTensor | int, DeviceTensor | int]
    rope: DeviceRope
    q: DeviceTensor
    k: DeviceTensor
    gates: DeviceTensor | int

    def launch(self) -> None:
        """Make them."""
        made = (self.q, self.k, self.gates)
        arguments = (*self.raw, *self.norms, self.rope.cos, self.rope.sin, *made)
        self._launch(programs.VECTORS, "prepare_heads", self.form.keys, arguments)

    def launch_and_store(self, v: DeviceTensor, cache: CudaKvCache) -> None:
        """Make them, keys in the cache alone, beside the values."""
        kept = (cache.keys, cache.values, self.ops.step.position)
        angles = (self.rope.cos, self.rope.sin)
        arguments = (*self.raw, v, *self.norms, *angles, self.q, self.gates, *kept)
        program = programs.attention(cache.format_name)
        self._launch(program, "prepare_and_store", 2 * self.form.keys, arguments)

    def _launch(self, program: Program, name: str, beside: int, arguments: tuple[Any, ...]) -> None:
        form, pairs = self.form, self.rope.cos.shape[1]
        self.ops._launch(
            program,
            name,
            (form.queries + beside, self.q.shape[0]),
            blocks(form.size, WARP) * WARP,
            *(*arguments, form.queries, form.keys, form.size),
            *(pairs, int(form.gated), float(form.eps)),
        )


class MixerOps(OpsBase):
    """KV caches, and what is computed with them."""

    def kv_cache(self, format_name: str, context: int, heads: int, size: int) -> CudaKvCache:
        """An undefined KV cache of one layer for `context` tokens.

        Raises UnsupportedModelError for a head size that no kernel is made for.
        """
        if size not in HEAD_SIZES:
            raise UnsupportedModelError(
                f"Heads of {size} values are not computed on a graphics card; {HEAD_SIZES} are.",
                "Use --device host.",
            )
        return CudaKvCache.create(self.resident, format_name, context, heads, size)

    def prepare_heads(
        self,
        q: DeviceTensor,
        k: DeviceTensor,
        heads: HeadsForm,
        norms: tuple[DeviceTensor | None, DeviceTensor | None],
        rope: DeviceRope,
    ) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None]:
        """Queries, keys and gates of all heads in one kernel; attention may store in it too."""
        tokens, size = q.shape[0], heads.size
        out = [self.workspace.tensor(tokens, n, size) for n in (heads.queries, heads.keys)]
        gates = self.workspace.tensor(tokens, heads.queries * size) if heads.gated else None
        given = (norms[0] or 0, norms[1] or 0)
        self._wait(_Heads(self, (q, k), heads, given, rope, out[0], out[1], gates or 0))
        return out[0], out[1], gates

    def attention(
        self,
        q: DeviceTensor,
        k: DeviceTensor,
        v: DeviceTensor,
        cache: CudaKvCache,
        start: int,
        scale: float,
        *,
        window: int = 0,
        sinks: DeviceTensor | None = None,
    ) -> DeviceTensor:
        """Store k and v [T, G, d] from the step's position on and attend causally; [T, H·d].

        Keys that `prepare_heads` has just made are undefined afterwards.
        """
        tokens, heads, size = q.shape
        program, position = programs.attention(cache.format_name), self.step.position
        self.store(k, v, cache)
        out = self.workspace.tensor_and_fixed(tokens, heads * size)
        with self.scope():
            sums = self.workspace.tensor(tokens, heads, cache.splits, size)
            maxima = self.workspace.tensor(tokens, heads, cache.splits, 2)
            pieces = blocks(heads // cache.heads, HEADS_AT_ONCE)
            self._launch(
                program,
                f"attend_{size}",
                (cache.splits, cache.heads * pieces, tokens),
                THREADS,
                *(q, cache.keys, cache.values, position, sums, maxima, heads, cache.heads),
                *(float(scale), window),
            )
            parts = (sums, maxima, sinks)
            self._wait(_Combination(self, program, *parts, out, window, cache, heads))
        return out

    def store(self, k: DeviceTensor, v: DeviceTensor, cache: CudaKvCache) -> None:
        """Store k and v [T, G, d] from the step's position on; k as in `attention`."""
        waiting = self._waiting
        if isinstance(waiting, _Heads) and waiting.k.address == k.address:
            self._waiting = None
            waiting.launch_and_store(v, cache)
            return
        tokens, heads, size = k.shape
        width = heads * size
        stored = (k, v, cache.keys, cache.values, self.step.position, width)
        program = programs.attention(cache.format_name)
        self._launch(program, "store", (width // WARP, tokens, 2), WARP, *stored)

    def _joins_attention(self, x: DeviceTensor, gate: DeviceTensor) -> bool:
        """Whether x is an attention's result that waits, and now waits to be gated too."""
        waiting = self._waiting
        if not isinstance(waiting, _Combination) or waiting.out.address != x.address:
            return False
        if waiting.gate is not None:
            return False
        waiting.gate = gate
        return True
