"""Which slot a missed expert may take, and whether it is worth taking."""

from stratadesk.engine.vram.slot_states import SlotState
from stratadesk.engine.vram.slot_table import SlotTable
from stratadesk.engine.vram.use_rates import UseRates


class Replacement:
    """Least recently used first; in layers of fewer than `filter_below` slots, by rate of use.

    The rule for such small layers, and the reason for it, are in `use_rates`: what is replaced
    is the expert with the lowest rate, and only if the missed expert is likelier to be used in
    the next step. EMPTY slots are taken first and by any miss.
    """

    def __init__(self, table: SlotTable, rates: UseRates, filter_below: int) -> None:
        self._table = table
        self._rates = rates
        self._filter_below = filter_below

    def is_filtered(self, layer: int) -> bool:
        """Whether the rule for small layers holds in `layer`."""
        return len(range(layer, self._table.mapped, self._table.layers)) < self._filter_below

    def victims(self, layer: int, step: int) -> list[int]:
        """Return the slots that misses of `step` may take; the one to be taken first is last."""
        slots = self._table.free_to_fill(layer, step)
        if not self.is_filtered(layer):
            return [int(slot) for slot in self._table.latest_first(slots)]
        empty = self._table.state[slots] == SlotState.EMPTY
        full = slots[~empty]
        order = self._rates.highest_first(layer, self._table.expert[full])
        return [int(slot) for slot in (*full[order], *slots[empty])]

    def admits(self, layer: int, missed: int, victim: int) -> bool:
        """Whether expert `missed` is to take the slot `victim`, which it may take."""
        if not self.is_filtered(layer) or self._table.state.item(victim) == SlotState.EMPTY:
            return True
        return self._rates.prefers(layer, missed, self._table.expert.item(victim))
