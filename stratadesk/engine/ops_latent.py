"""Operations of multi-head latent attention; see `ops.Ops` for what holds of all of them.

T tokens, H heads; a token's row in the cache has c latent values and R rotated ones.
"""

from typing import Any, Protocol


class LatentOps(Protocol):
    """What attention over compressed rows needs besides the operations of every family."""

    def head_rows(
        self, weight: Any, heads: int, first: int, rows: int, *, transposed: bool = False
    ) -> Any:
        """Rows `first` … `first + rows` of each head's equal part of a weight.

        With `transposed` each head multiplies with the transpose of its rows.
        """

    def latent_cache(self, format_name: str, context: int, size: int, latent: int) -> Any:
        """An empty cache of one layer: rows of `size` values, the first `latent` their value."""

    def norm_prefix(self, x: Any, weight: Any, eps: float) -> None:
        """RMS norm, in place, of the first values of each row of x, as many as `weight` has."""

    def rotate_neighbours(self, x: Any, rope: Any, first: int) -> None:
        """Rotate pairs (v[first + 2i], v[first + 2i + 1]) of x [T, H, d] in place (NORM form)."""

    def absorbed_query(self, q: Any, keys: Any, latent: int) -> Any:
        """[T, H, n + R] → [T, H, c + R]: n values through each head's rows, R as they are."""

    def latent_attention(self, q: Any, rows: Any, cache: Any, start: int, scale: float) -> Any:
        """Store rows [T, c + R] at `start` and attend causally with q [T, H, c + R]; [T, H, c]."""

    def per_head(self, rows: Any, x: Any) -> Any:
        """[T, H, columns] → [T, H · rows]: each head through its own rows."""
