"""CUDA operations of the gated delta net, which are one kernel where they follow each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stratadesk.errors import UnsupportedModelError
from stratadesk.kernels.cuda import programs
from stratadesk.kernels.cuda.ops_base import THREADS, OpsBase, blocks
from stratadesk.kernels.cuda.ops_products import MOST_TOKENS
from stratadesk.kernels.cuda.states import CudaDeltaState
from stratadesk.kernels.cuda.tensors import DeviceTensor

DELTA_SIZES = (32, 64, 128)
"""What kernels are made for."""

MOST_TAPS = 8
"""Tokens that a convolution spans at most: the kernels' shared memory holds as many."""

KEY_GROUPS = 4
"""Threads of the kernel that share a column of a head's memory: KEY_GROUPS in delta_net.cu."""


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution that nothing has computed yet."""

    u: DeviceTensor
    weight: DeviceTensor
    state: CudaDeltaState
    out: DeviceTensor


@dataclass(frozen=True, slots=True)
class _Gates:
    """Gates that are still raw."""

    beta: DeviceTensor
    alpha: DeviceTensor
    dt: DeviceTensor
    a: DeviceTensor


@dataclass(frozen=True, slots=True)
class _Rule:
    """A delta rule that nothing has computed yet."""

    convolved: DeviceTensor
    beta: DeviceTensor
    decay: DeviceTensor
    heads: DeviceTensor
    key_heads: int
    eps: float
    state: CudaDeltaState
    out: DeviceTensor

    @property
    def size(self) -> int:
        """Columns of a head's memory."""
        return self.out.shape[-1]


@dataclass(frozen=True, slots=True)
class _Norm:
    """A norm over the columns of each head of a delta rule's output, and its gate."""

    gate: DeviceTensor
    weight: DeviceTensor
    eps: float
    by_sigmoid: bool
    out: DeviceTensor


@dataclass(slots=True)
class _Chain:
    """Operations of one delta net that wait, in their order.

    A delta rule is one kernel with what it follows and what follows it; without one, each operation
    is a kernel by itself. No block writes what another has yet to read: the norm's result is placed
    while the rule's is in use, and all that is read here was placed before that.
    """

    ops: "DeltaOps"
    convolution: _Convolution | None = None
    gates: _Gates | None = None
    rule: _Rule | None = None
    norm: _Norm | None = None

    def takes_gates(self) -> bool:
        """Whether there is nothing here that gates come behind."""
        return self.gates is None and self.rule is None

    def takes(self, rule: _Rule, *, written: bool) -> bool:
        """Whether everything here only prepares `rule`, so that its kernel can do it.

        `written`: each key head has a value head, whose block writes its channels' history.
        """
        if self.rule is not None:
            return False
        convolution, gates = self.convolution, self.gates
        if convolution:
            made = (convolution.out, convolution.state)
            if not written or made != (rule.convolved, rule.state):
                return False
        return gates is None or (gates.beta, gates.alpha) == (rule.beta, rule.decay)

    def launch(self) -> None:
        """Compute them."""
        if self.rule is not None:
            self._launch_rule(self.rule)
            return
        if self.convolution is not None:
            self._launch_convolution(self.convolution)
        if self.gates is not None:
            beta, dt = self.gates.beta, self.gates.dt
            raw = (beta, self.gates.alpha, dt, self.gates.a, dt.size)
            self.ops._each(programs.DELTA_NET, "delta_gates", beta.size, *raw)

    def _launch_convolution(self, part: _Convolution) -> None:
        tokens, channels = part.u.shape
        self.ops._launch(
            programs.DELTA_NET,
            "causal_convolution",
            (blocks(channels, THREADS),),
            THREADS,
            *(part.u, part.weight, part.state.histories, self.ops.step.side, part.out),
            *(channels, part.weight.shape[1], tokens),
        )

    def _launch_rule(self, rule: _Rule) -> None:
        tokens, heads, size = rule.out.shape
        convolution, gates, norm = self.convolution, self.gates, self.norm
        u: tuple[Any, ...] = (rule.convolved, 0, 0, 0)
        if convolution:
            taps = convolution.weight.shape[1]
            u = (convolution.u, convolution.weight, rule.state.histories, taps)
        raw = (gates.dt, gates.a) if gates else (0, 0)
        after: tuple[Any, ...] = (0, 0, 0, 0.0)
        if norm:
            after = (norm.gate, norm.weight, int(norm.by_sigmoid), norm.eps)
        out = norm.out if norm else rule.out
        self.ops._launch(
            programs.DELTA_NET,
            f"delta_net_{size}",
            (heads,),
            KEY_GROUPS * size,
            *(*u, rule.beta, rule.decay, *raw, rule.heads, rule.state.memories),
            *(self.ops.step.side, *after, out, out.fixed),
            *(rule.key_heads, heads, tokens, rule.eps),
        )


class DeltaOps(OpsBase):
    """What a delta net's layer keeps between steps, and what is computed with it."""

    def delta_state(self, width: int, channels: int, value_heads: int, size: int) -> CudaDeltaState:
        """Zero state of a delta-net layer whose convolution spans `width` tokens.

        Raises UnsupportedModelError for a state size or a span that no kernel is made for.
        """
        if size not in DELTA_SIZES or width > MOST_TAPS:
            raise UnsupportedModelError(
                f"Delta nets of size {size} that convolve {width} tokens are not computed on a "
                f"graphics card; {DELTA_SIZES} and up to {MOST_TAPS} tokens are.",
                "Use --device host.",
            )
        state = CudaDeltaState.create(self.resident, width, channels, value_heads, size)
        self.clear(state.histories)
        self.clear(state.memories)
        return state

    def causal_convolution(
        self, u: DeviceTensor, weight: DeviceTensor, state: CudaDeltaState
    ) -> DeviceTensor:
        """silu of the depthwise convolution over the state's history and u [T, channels].

        A delta rule that takes it convolves by itself and leaves this result undefined.
        """
        _check_tokens(u.shape[0])
        out = self.workspace.tensor(*u.shape)
        self._wait(_Chain(self, _Convolution(u, weight, state, out)))
        return out

    def delta_gates(
        self, beta: DeviceTensor, alpha: DeviceTensor, dt: DeviceTensor, a: DeviceTensor
    ) -> None:
        """In place: beta = sigmoid(beta), alpha = exp(softplus(alpha + dt) · a); [T, n_v].

        A delta rule that comes next makes them itself and leaves both undefined.
        """
        gates, waiting = _Gates(beta, alpha, dt, a), self._waiting
        if isinstance(waiting, _Chain) and waiting.takes_gates():
            waiting.gates = gates
        else:
            self._wait(_Chain(self, gates=gates))

    def delta_rule(
        self,
        convolved: DeviceTensor,
        beta: DeviceTensor,
        decay: DeviceTensor,
        key_head_of: npt.NDArray[np.int32],
        eps: float,
        state: CudaDeltaState,
    ) -> DeviceTensor:
        """The gated delta rule over T tokens; [T, n_v, S].

        A gated norm that comes next leaves it undefined.
        """
        _, value_heads, size, _ = state.memories.shape
        tokens, channels = convolved.shape
        _check_tokens(tokens)
        key_heads = (channels // size - value_heads) // 2
        out = self.workspace.tensor(tokens, value_heads, size)
        # A new constant is copied, which has nothing to wait for: what waits goes on waiting.
        waiting, self._waiting = self._waiting, None
        heads = self.constant(with_writers(key_head_of))
        self._waiting = waiting
        rule = _Rule(convolved, beta, decay, heads, key_heads, float(eps), state, out)
        written = len(np.unique(key_head_of)) == key_heads
        if isinstance(waiting, _Chain) and waiting.takes(rule, written=written):
            waiting.rule = rule
        else:
            self._wait(_Chain(self, rule=rule))
        return out

    def _joins_delta_rule(
        self,
        x: DeviceTensor,
        gate: DeviceTensor,
        weight: DeviceTensor,
        eps: float,
        *,
        by_sigmoid: bool,
    ) -> DeviceTensor | None:
        """The norm of x over its last axis, gated, if x is a delta rule's result that waits."""
        waiting = self._waiting
        if not isinstance(waiting, _Chain) or waiting.rule is None or waiting.norm is not None:
            return None
        if x != waiting.rule.out or weight.size != waiting.rule.size or gate.address == x.address:
            return None
        out = self.workspace.tensor_and_fixed(*x.shape)
        waiting.norm = _Norm(gate, weight, float(eps), by_sigmoid, out)
        return out


def with_writers(key_head_of: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Each value head's key head k, as ~k for all but the first of those that share it.

    Blocks that share a key head all convolve its channels; the first one keeps their history.

    >>> with_writers(np.array([0, 1, 0, 1], np.int32)).tolist()
    [0, 1, -1, -2]
    """
    _, first = np.unique(key_head_of, return_index=True)
    named: npt.NDArray[np.int32] = ~key_head_of
    named[first] = key_head_of[first]
    return named


def _check_tokens(tokens: int) -> None:
    if tokens > MOST_TOKENS:
        raise ValueError(f"{tokens} tokens, {MOST_TOKENS} at most")
