"""The object that `stratadesk plan --json` prints; scripts rely on its keys."""

from typing import TYPE_CHECKING

from stratadesk.engine.vram.regions import PHASES
from stratadesk.units import MIB

if TYPE_CHECKING:
    from stratadesk.engine.vram.layouts import LayoutFacts
    from stratadesk.engine.vram.plan import VramPlan
    from stratadesk.engine.vram.resident import ResidentModel

REQUESTS = (16, 64, 256, 512, 1_024, 2_048, 8_192, 29_854)
"""Fresh tokens that every plan tells about, as far as the context holds them."""


def plan_object(plan: "VramPlan", resident: "ResidentModel | None" = None) -> dict[str, object]:
    """Return the plan in built-in types. Sizes are bytes unless a key says MiB.

    `resident` tells what this version does on a real card, where that is planned for.
    """
    return {
        "card": _card(plan),
        "regions": [region.as_json() for region in plan.regions],
        "rows": max(plan.arena.resident(), default=0),
        "slots_total": plan.slots,
        "slots_per_layer": list(plan.arena.resident()),
        "slot_bytes_per_layer": list(plan.geometry.slot_bytes),
        "head_bytes": plan.shape.head_bytes,
        "tiers": {
            "slot": plan.host.slot,
            "pinned": plan.host.pinned,
            "pageable": plan.host.pageable,
        },
        "layouts": {layout.value: _layout(facts) for layout, facts in plan.layouts.items()},
        "free_mib_by_phase": {phase: mib_down(plan.free_bytes(phase)) for phase in PHASES},
        "reserve_mib": plan.settings.reserve // MIB,
        "requests": [plan.request(n).as_json() for n in REQUESTS if n <= plan.context],
        "problems": [str(problem) for problem in plan.problems],
        "device_cuda": resident.as_json() if resident else None,
    }


def mib_down(n_bytes: int) -> float:
    """Return MiB with one decimal, rounded down, so that no figure promises too much."""
    return n_bytes * 10 // MIB / 10


def _card(plan: "VramPlan") -> dict[str, object]:
    machine = plan.machine
    return {
        "total_bytes": machine.card,
        "free_bytes": machine.free_before,
        "others_bytes": machine.card - machine.free_before,
        "mapped_bytes": plan.mapped_bytes,
        "driver_model": machine.driver_model.value,
    }


def _layout(facts: "LayoutFacts") -> dict[str, int]:
    return {
        "max_chunk": facts.max_chunk,
        "buffers_bytes": facts.buffer_bytes,
        "slots_lent": facts.slots_lent,
        "slots_total": facts.slots_total,
    }
