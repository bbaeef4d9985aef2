"""What a model would get with other settings, told from its header without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stratadesk.errors import StrataDeskError

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sizes in bytes, `context` in tokens; `trouble` says why it would not load, else empty."""

    context: int = 0
    kv_bytes: int = 0
    slots: int = 0
    free: int = 0
    trouble: str = ""


def forecast(path: Path, settings: EngineSettings) -> Forecast:
    """Plan the model at `path` with `settings`; takes as long as reading its header.

    A plan is made for the card as it was when the settings were made; never raises for a model
    or settings that cannot work, but says why.
    """
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.host_plan import plan_for_host

    try:
        with GgufFile.open(path) as gguf:
            plan = plan_for_host(gguf, settings)
            plan.check()
    except StrataDeskError as error:
        return Forecast(trouble=error.sentence)
    return Forecast(
        context=plan.context,
        kv_bytes=plan.parts.kv,
        slots=plan.slots,
        free=plan.free_bytes("ready"),
    )
