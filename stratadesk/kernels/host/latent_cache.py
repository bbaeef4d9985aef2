"""The host's cache of one latent-attention layer: a single row per token for all heads."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host.formats import FORMATS, HostFormat
from stratadesk.kernels.host.kernel import Kernel
from stratadesk.kernels.host.kv_cache import cached_units, store_values
from stratadesk.kernels.host.latent_attention import LATENT_ATTENTION
from stratadesk.kernels.host.workspace import Workspace


@dataclass(frozen=True, slots=True)
class HostLatentCache:
    """Rows of `size` values, the first `latent` of which are the token's value, for a context."""

    format: HostFormat
    size: int
    latent: int
    rows: npt.NDArray[np.generic]

    @classmethod
    def create(
        cls, memory: Workspace, format_name: str, context: int, size: int, latent: int
    ) -> "HostLatentCache":
        """Take undefined memory for `context` tokens; UsageError as for `cached_units`."""
        item = FORMATS[format_name]
        units = context * cached_units(item, size)
        return cls(item, size, latent, memory.empty((units,), item.unit))

    @property
    def n_bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows.nbytes

    @property
    def attention(self) -> Kernel:
        """The attention kernel that reads this cache."""
        return LATENT_ATTENTION[self.format.name]

    @property
    def row_units(self) -> int:
        """Storage units of one token's row."""
        return self.format.units(self.size)

    def store(self, start: int, rows: npt.NDArray[np.float32]) -> None:
        """Write rows [T, size] for the tokens from `start` on."""
        span = slice(start * self.row_units, (start + len(rows)) * self.row_units)
        store_values(rows, self.format.name, self.rows[span])

    def commit(self) -> None:
        """Nothing to do: what lies beyond the tokens held is never read."""
