"""What outlives a step on the device: where it stands, KV caches, recurrent states."""

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from stratadesk.kernels.cuda.tensors import DeviceTensor, DeviceWorkspace

LEAST_SPAN, MOST_SPLITS = 32, 64
"""Tokens of a span at least, and spans that attention divides what a token sees into at most."""


@dataclass(frozen=True, slots=True)
class StepState:
    """The addresses of a step's position and side (int32 each, side by side) and its tokens."""

    position: int
    tokens: int

    @property
    def side(self) -> int:
        """Which side of the recurrent states is read, 0 or 1."""
        return self.position + 4


@dataclass(frozen=True, slots=True)
class CudaKvCache:
    """Keys and values (addresses) of one layer for a context of `heads` kv heads.

    Attention goes through spans of it side by side, `splits` of them at most.
    """

    format_name: str
    heads: int
    keys: int
    values: int
    n_bytes: int
    splits: int

    @classmethod
    def create(
        cls, memory: DeviceWorkspace, format_name: str, context: int, heads: int, size: int
    ) -> "CudaKvCache":
        """Take undefined memory for `context` tokens of `size` values a head."""
        values, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[format_name]]
        total = context * heads * size // int(values) * int(n_bytes)
        keys, kept = memory.take(total), memory.take(total)
        splits = min(MOST_SPLITS, -(-context // LEAST_SPAN))
        return cls(format_name, heads, keys, kept, 2 * total, splits)

    def commit(self) -> None:
        """Nothing: what lies behind the position is not looked at."""


@dataclass(frozen=True, slots=True)
class CudaDeltaState:
    """Histories [2, C-1, channels] and memories [2, n_v, S, S]; the step knows the side to read.

    The values of a memory lie as the threads of its kernel hold them; see src/delta_net.cu.
    """

    histories: DeviceTensor
    memories: DeviceTensor

    @classmethod
    def create(
        cls, memory: DeviceWorkspace, width: int, channels: int, value_heads: int, size: int
    ) -> "CudaDeltaState":
        """Take undefined memory."""
        histories = memory.tensor(2, width - 1, channels)
        return cls(histories, memory.tensor(2, value_heads, size, size))

    @property
    def n_bytes(self) -> int:
        """Bytes of both sides."""
        return 4 * (self.histories.size + self.memories.size)

    def commit(self) -> None:
        """Nothing: the step's side says which one is committed."""
