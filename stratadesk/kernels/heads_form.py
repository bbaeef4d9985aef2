"""How the heads of an attention lie in its projections."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeadsForm:
    """`queries` heads and `keys` kv heads of `size` values; `eps` is their norms'.

    `gated`: a row of queries holds for each head its values, then as many of its gate.
    """

    queries: int
    keys: int
    size: int
    gated: bool
    eps: float
