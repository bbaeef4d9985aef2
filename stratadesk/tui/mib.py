"""Sizes of a card in MiB, all with as many decimals, so that a row of them lines up and adds up."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratadesk.units import MIB

SMALL_CARD = 256 * MIB
"""On a smaller card, a simulated one, whole MiB would hide everything."""
NO_FIGURE = "N/A"


@dataclass(frozen=True, slots=True)
class MibScale:
    """How sizes of a card are written: in whole MiB or with `decimals`."""

    decimals: int

    @property
    def units(self) -> int:
        """How many of the smallest units written make a MiB."""
        return int(10**self.decimals)

    def text(self, n_bytes: int | None) -> str:
        """Write a size rounded down, so that 0 is shown when nothing is left; N/A for None.

        >>> MibScale(0).text(1640 * MIB), MibScale(2).text(MIB // 2)
        ('1,640', '0.50')
        """
        if n_bytes is None:
            return NO_FIGURE
        return self.write(self.down(n_bytes))

    def down(self, n_bytes: int) -> int:
        """Return a size in smallest units, rounded down."""
        return n_bytes * self.units // MIB

    def nearest(self, n_bytes: int) -> str:
        """Write a size rounded to the nearest unit."""
        return self.write((2 * n_bytes * self.units + MIB) // (2 * MIB))

    def write(self, units: int) -> str:
        """Write a number of smallest units."""
        sign = "−" if units < 0 else ""
        return f"{sign}{abs(units) / self.units:,.{self.decimals}f}"

    def shared_out(self, parts: Sequence[int], whole: int) -> list[int]:
        """Round each of `parts` (bytes) up or down so that together they are `whole` units.

        What rounding down leaves goes to the parts with the largest remainders. Where `whole` is
        not their sum but for rounding, they are only rounded down.
        """
        down = [self.down(part) for part in parts]
        left = whole - sum(down)
        if not 0 <= left <= len(parts):
            return down
        for i in sorted(range(len(parts)), key=lambda i: -(parts[i] * self.units % MIB))[:left]:
            down[i] += 1
        return down


def scale_of(total: int) -> MibScale:
    """Return the scale for a card of `total` bytes."""
    return MibScale(2 if total < SMALL_CARD else 0)
