"""What a model would get with other settings, told from its header without loading it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.errors import StrataDeskError

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sizes in bytes, `context` in tokens; `trouble` says why it would not load, else empty.

    `card_bytes` is what it takes of a real card; 0 where none is asked for.
    """

    context: int = 0
    kv_bytes: int = 0
    slots: int = 0
    free: int = 0
    card_bytes: int = 0
    trouble: str = ""


def forecast(path: Path, settings: EngineSettings) -> Forecast:
    """Plan the model at `path` with `settings`; takes as long as reading its header.

    A plan is made for the card as it was when the settings were made; never raises for a model
    or settings that cannot work, but says why. On a real card every expert has a slot; there must
    be a driver, but whether the card has room is seen when the model is loaded.
    """
    from stratadesk.engine.commands import Device
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.host_plan import plan_for_host

    on_card, card_bytes = settings.device is Device.CUDA, 0
    try:
        with GgufFile.open(path) as gguf:
            if on_card:
                from stratadesk.engine.card_need import card_need
                from stratadesk.kernels.cuda.device import driver_version

                card_bytes, context = card_need(gguf, settings)
                driver_version()
                settings = replace(settings, plan=None, max_context=context)
            plan = plan_for_host(gguf, settings)
            plan.check()
    except StrataDeskError as error:
        return Forecast(trouble=error.sentence)
    experts = sum(mixture.experts for mixture in plan.shape.experts(settings.mtp))
    return Forecast(
        context=plan.context,
        kv_bytes=plan.parts.kv,
        slots=experts if on_card else plan.slots,
        free=plan.free_bytes("ready"),
        card_bytes=card_bytes,
    )
