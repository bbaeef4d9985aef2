"""Operations of multi-head latent attention."""

import numpy as np
import numpy.typing as npt

from stratadesk.kernels.host import latent_attention
from stratadesk.kernels.host.heads import HostHeadRows
from stratadesk.kernels.host.latent_cache import HostLatentCache
from stratadesk.kernels.host.ops_base import HostRope, OpsBase
from stratadesk.kernels.host.weights import HostWeight, multiply

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class LatentOps(OpsBase):
    """See `stratadesk.engine.ops_latent.LatentOps` for each operation's meaning."""

    def head_rows(
        self, weight: HostWeight, heads: int, first: int, rows: int, *, transposed: bool = False
    ) -> HostHeadRows:
        """Rows `first` … `first + rows` of each head's equal part of a weight."""
        if transposed:
            # Only old files need this product: it is made ready for their formats alone.
            latent_attention.TRANSPOSED[weight.format.name].compile()
        return HostHeadRows(weight, heads, first, rows, transposed)

    def latent_cache(
        self, format_name: str, context: int, size: int, latent: int
    ) -> HostLatentCache:
        """An undefined cache of one layer: a row of `size` values for each of `context` tokens."""
        return HostLatentCache.create(self.resident, format_name, context, size, latent)

    def norm_prefix(self, x: Floats, weight: Floats, eps: float) -> None:
        """RMS norm, in place, of the first values of each row of x, as many as `weight` has."""
        latent_attention.norm_prefix(x, weight, np.float32(eps))

    def rotate_neighbours(self, x: Floats, rope: HostRope, first: int) -> None:
        """NORM rotation, in place, of the values from `first` on of x [T, H, d]."""
        latent_attention.rotate_neighbours(x, rope.cos, rope.sin, first)

    def absorbed_query(self, q: Floats, keys: HostHeadRows, latent: int) -> Floats:
        """[T, H, n + R] → [T, H, c + R]: n values through each head's matrix, R as they are."""
        tokens, heads, size = q.shape
        n = keys.rows if keys.transposed else keys.weight.columns
        out = self._empty(tokens, heads, latent + size - n)
        if keys.transposed:
            self._multiply_transposed(keys, q, out)
        else:
            with self.scope():
                plain = self._empty(tokens, heads, n)
                plain[:] = q[:, :, :n]
                self._multiply_heads(keys, plain, out.reshape(tokens * heads, -1))
        out[:, :, latent:] = q[:, :, n:]
        return out

    def latent_attention(
        self, q: Floats, rows: Floats, cache: HostLatentCache, start: int, scale: float
    ) -> Floats:
        """Store rows [T, c + R] from token `start` on and attend causally; [T, H, c]."""
        cache.store(start, rows)
        out = self._empty(q.shape[0], q.shape[1], cache.latent)
        cache.attention(q, cache.rows, cache.row_units, start, np.float32(scale), out)
        return out

    def per_head(self, part: HostHeadRows, x: Floats) -> Floats:
        """[T, H, columns] → [T, H · rows]: each head through its own matrix."""
        tokens = x.shape[0]
        out = self._empty(tokens * part.heads, part.rows)
        with self.scope():
            self._multiply_heads(part, x, out)
        return out.reshape(tokens, -1)

    def _multiply_heads(self, part: HostHeadRows, x: Floats, out: Floats) -> None:
        """Write the product of head h to the first columns of rows t · H + h of `out`."""
        tokens, heads, columns = x.shape
        order: Ints = self.workspace.empty((heads, tokens), np.int32)
        np.add(
            np.arange(heads, dtype=np.int32)[:, None],
            np.arange(tokens, dtype=np.int32) * np.int32(heads),
            out=order,
        )
        starts = np.arange(heads + 1, dtype=np.int32) * np.int32(tokens)
        sorted_by = (order.reshape(-1), starts)
        multiply(part.matrix, part.addresses(), x.reshape(-1, columns), 1, sorted_by, out, 0)

    def _multiply_transposed(self, part: HostHeadRows, x: Floats, out: Floats) -> None:
        weight = part.weight
        product = latent_attention.TRANSPOSED[weight.format.name]
        product(part.addresses(), weight.row_units, part.rows, x, weight.columns, out)
