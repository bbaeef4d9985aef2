"""What the expert cache has done, in numbers that must balance."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class CacheCounters:
    """Events since the cache began, or within a window: a difference of two such records.

    Bytes are whole slots, alignment included.
    """

    hits: int = 0
    """Experts found in a slot."""
    misses: int = 0
    """Experts not found in a slot; each became a fill or a bypass."""
    fills: int = 0
    """Misses given a slot; each is then filled, failed or dropped."""
    bypasses: int = 0
    """Misses read from the host tier without a slot."""
    turned_away: int = 0
    """Those bypasses for which a slot was free to take but held a more used expert."""
    filled: int = 0
    """Fills whose bytes came to stand in the map."""
    fills_failed: int = 0
    """Fills whose copy failed."""
    fills_dropped: int = 0
    """Fills whose slot was lent or unmapped first."""
    reserved: int = 0
    """Slots kept for the background refill; each is then refilled, dropped or abandoned."""
    refilled: int = 0
    """Reservations whose bytes came to stand in the map."""
    refills_dropped: int = 0
    """Reservations not needed any more: the expert had come in on demand."""
    refills_abandoned: int = 0
    """Reservations given up by the refill."""
    refills_withdrawn: int = 0
    """Reservations whose slot was lent or unmapped first."""
    bytes_filled: int = 0
    """Bytes copied into slots on demand."""
    bytes_refilled: int = 0
    """Bytes copied into slots in the background."""
    bytes_streamed: int = 0
    """Bytes of bypassed experts."""

    @property
    def hit_rate(self) -> float | None:
        """Hits among all experts asked for, None before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    def copy(self) -> "CacheCounters":
        """Return the present figures as a record of their own."""
        return self - CacheCounters()

    def __sub__(self, earlier: "CacheCounters") -> "CacheCounters":
        names = [field.name for field in fields(self)]
        return CacheCounters(*(getattr(self, name) - getattr(earlier, name) for name in names))

    def violations(self, filling: int, reserved: int) -> list[str]:
        """Return sentences about sums that do not balance, with `filling` and `reserved` slots."""
        fills = self.filled + self.fills_failed + self.fills_dropped + filling
        refills = (
            self.refilled + self.refills_dropped + self.refills_abandoned + self.refills_withdrawn
        )
        sums = (
            (self.misses, self.fills + self.bypasses, "misses", "fills and bypasses"),
            (self.fills, fills, "fills", "filled, failed, dropped and under way"),
            (self.reserved, refills + reserved, "reservations", "ended and open ones"),
        )
        return [f"{a} {one}, but {b} {other}" for a, b, one, other in sums if a != b]
