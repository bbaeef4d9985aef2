"""The host's KV cache of one layer, kept in the storage units of F32, F16 or Q8_0."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.errors import UsageError
from stratadesk.kernels.host.attention import ATTENTION
from stratadesk.kernels.host.formats import FORMATS, HostFormat
from stratadesk.kernels.host.kernel import Kernel
from stratadesk.kernels.host.workspace import Workspace

Floats = npt.NDArray[np.float32]
Units = npt.NDArray[np.generic]


def cached_units(item: HostFormat, size: int) -> int:
    """Storage units of a cached row of `size` values.

    Raises UsageError when the row is not made of whole blocks.
    """
    if size % item.block_values:
        raise UsageError(
            f"A KV cache in {item.name} needs rows of whole blocks of {item.block_values} values, "
            f"this model's rows have {size}.",
            "Use --kv f16 or --kv f32.",
        )
    return item.units(size)


def store_values(x: Floats, name: str, target: Units) -> None:
    """Write the values of x to `target`, units of the format `name`, block by block."""
    if name == "F32":
        target[:] = x.reshape(-1)
    elif name == "F16":
        target.view(np.float16)[:] = x.reshape(-1)
    else:
        _store_q8_0(x.reshape(-1, 32), target.reshape(-1, 34))


def _store_q8_0(blocks: Floats, packed: Units, group: int = 256) -> None:
    """Quantize blocks of 32 values: scale = largest magnitude / 127; a few blocks at a time."""
    for first in range(0, len(blocks), group):
        some, out = blocks[first : first + group], packed[first : first + group]
        scales = np.abs(some).max(axis=1, keepdims=True) / np.float32(127)
        inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
        out[:, :2] = scales.astype(np.float16).view(np.uint8)
        out[:, 2:] = np.rint(some * inverse).astype(np.int8).view(np.uint8)


@dataclass(frozen=True, slots=True)
class HostKvCache:
    """Keys and values of one layer for `context` tokens of `heads` kv heads of `size` values."""

    format: HostFormat
    heads: int
    size: int
    keys: Units
    values: Units

    @classmethod
    def create(
        cls, memory: Workspace, format_name: str, context: int, heads: int, size: int
    ) -> "HostKvCache":
        """Take undefined memory for `context` tokens; UsageError as for `cached_units`."""
        item = FORMATS[format_name]
        units = (context * heads * cached_units(item, size),)
        return cls(
            item, heads, size, memory.empty(units, item.unit), memory.empty(units, item.unit)
        )

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def attention(self) -> Kernel:
        """The attention kernel that reads this cache."""
        return ATTENTION[self.format.name]

    @property
    def row_units(self) -> int:
        """Storage units of one token's row of one head."""
        return self.format.units(self.size)

    def store(self, start: int, k: Floats, v: Floats) -> None:
        """Write k and v [T, heads, size] for the tokens from `start` on."""
        units = self.heads * self.row_units
        span = slice(start * units, (start + len(k)) * units)
        store_values(k, self.format.name, self.keys[span])
        store_values(v, self.format.name, self.values[span])

    def commit(self) -> None:
        """Nothing to do: what lies beyond the tokens held is never read."""
