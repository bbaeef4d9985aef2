"""How many expert slots must go so that the reserve is really free, and giving them back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stratadesk.engine.vram.readings import MemoryReading
from stratadesk.units import MIB

MOST_ROUNDS = 8
"""Other programs may take what was given back; this often it is made good."""


def shortage(reading: MemoryReading, reserve: int) -> int | None:
    """Bytes missing to the reserve, 0 when it is kept; None when the headroom is not known."""
    headroom = reading.headroom
    return None if headroom is None else max(0, reserve - headroom)


def slots_to_give_back(
    reading: MemoryReading, reserve: int, slot_bytes: Iterable[int]
) -> int | None:
    """How many slots make good the shortage; None when the headroom is not known.

    `slot_bytes` are the sizes of the slots in the order in which they would be given back. When
    all of them are not enough, it is all of them.
    """
    missing = shortage(reading, reserve)
    if missing is None:
        return None
    slots = 0
    for size in slot_bytes:
        if missing <= 0:
            break
        missing -= size
        slots += 1
    return slots


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What it took to keep the reserve; `before` and `after` are the headrooms in bytes."""

    reserve: int
    before: int | None
    after: int | None
    slots: int

    @property
    def reached(self) -> bool:
        """Whether the reserve is free now."""
        return self.after is not None and self.after >= self.reserve

    @property
    def sentence(self) -> str:
        """What the log says."""
        if self.before is None or self.after is None:
            return "The free video memory is not known, so no slots were given back for it."
        ending = "" if self.reached else "; the reserve is not reached"
        return (
            f"Free video memory {self.before / MIB:,.0f} → {self.after / MIB:,.0f} MiB, reserve "
            f"{self.reserve / MIB:,.0f} MiB: {self.slots:,} slots given back{ending}."
        )


def keep_reserve(
    read: Callable[[], MemoryReading], reserve: int, release: Callable[[int], int]
) -> GivenBack:
    """Read, give back what is missing, and read again until the reserve is free.

    `release(n_bytes)` gives back slots of at least that size in all and returns how many slots
    it gave, 0 when it has none left. Other programs may grow meanwhile.
    """
    reading = read()
    before = reading.headroom
    slots = 0
    for _ in range(MOST_ROUNDS):
        missing = shortage(reading, reserve)
        given = release(missing) if missing else 0
        if given == 0:
            break
        slots += given
        reading = read()
    return GivenBack(reserve, before, reading.headroom, slots)
