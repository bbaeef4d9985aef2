"""CUDA operations that mix tokens: attention over a KV cache, and the gated delta net."""

import numpy as np
import numpy.typing as npt

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import THREADS, WARP, WARPS, OpsBase, blocks
from stratadesk.kernels.cuda.states import CudaDeltaState, CudaKvCache
from stratadesk.kernels.cuda.tensors import DeviceTensor

HEAD_SIZES, DELTA_SIZES = (64, 128, 256), (32, 64, 128)
"""What kernels are made for."""


class MixerOps(OpsBase):
    """What a layer keeps between steps, and what is computed with it."""

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
        """Store k and v [T, G, d] from the step's position on and attend causally; [T, H·d]."""
        tokens, heads, size = q.shape
        program, position = programs.attention(cache.format_name), self.step.position
        width = cache.heads * size
        for x, target in ((k, cache.keys), (v, cache.values)):
            self._launch(
                program, "store", (width // WARP, tokens), WARP, x, target, position, width
            )
        out = self.workspace.tensor(tokens, heads * size)
        with self.scope():
            partials = self.workspace.tensor(tokens, heads, cache.splits, size + 2)
            self._launch(
                program,
                f"attend_{size}",
                (cache.splits, heads, tokens),
                WARPS * WARP,
                *(q, cache.keys, cache.values, position, partials, heads, cache.heads),
                *(float(scale), window, cache.span),
            )
            self._launch(
                program,
                "combine",
                (heads, tokens),
                size,
                *(partials, 0 if sinks is None else sinks, 0, position, out),
                *(cache.splits, size, window, cache.span),
            )
        return out

    def delta_state(self, width: int, channels: int, value_heads: int, size: int) -> CudaDeltaState:
        """Zero state of a delta-net layer whose convolution spans `width` tokens.

        Raises UnsupportedModelError for a state size that no kernel is made for.
        """
        if size not in DELTA_SIZES:
            raise UnsupportedModelError(
                f"Delta nets of size {size} are not computed on a graphics card; {DELTA_SIZES} "
                "are.",
                "Use --device host.",
            )
        state = CudaDeltaState.create(self.resident, width, channels, value_heads, size)
        self.clear(state.histories)
        self.clear(state.memories)
        return state

    def causal_convolution(
        self, u: DeviceTensor, weight: DeviceTensor, state: CudaDeltaState
    ) -> DeviceTensor:
        """silu of the depthwise convolution over the state's history and u [T, channels]."""
        tokens, channels = u.shape
        out = self.workspace.tensor(tokens, channels)
        self._launch(
            programs.DELTA_NET,
            "causal_convolution",
            (blocks(channels, THREADS),),
            THREADS,
            *(u, weight, state.histories, self.step.side, out, channels, weight.shape[1], tokens),
        )
        return out

    def delta_gates(
        self, beta: DeviceTensor, alpha: DeviceTensor, dt: DeviceTensor, a: DeviceTensor
    ) -> None:
        """In place: beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a); [T, n_v]."""
        self._each(programs.DELTA_NET, "delta_gates", beta.size, beta, alpha, dt, a, dt.size)

    def delta_rule(
        self,
        convolved: DeviceTensor,
        beta: DeviceTensor,
        decay: DeviceTensor,
        key_head_of: npt.NDArray[np.int32],
        eps: float,
        state: CudaDeltaState,
    ) -> DeviceTensor:
        """The gated delta rule over T tokens; [T, n_v, S]."""
        _, value_heads, size, _ = state.memories.shape
        tokens, channels = convolved.shape
        key_heads = (channels // size - value_heads) // 2
        out = self.workspace.tensor(tokens, value_heads, size)
        heads = self.constant(key_head_of)
        self._launch(
            programs.DELTA_NET,
            f"delta_rule_{size}",
            (size // WARP, value_heads),
            8 * WARP,
            *(convolved, beta, decay, heads, state.memories, self.step.side, out),
            *(key_heads, value_heads, tokens, float(eps)),
        )
        return out
