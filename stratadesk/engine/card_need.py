"""How much of a real card a model would take, worked out from its header without a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratadesk.engine.vram.resident import ResidentModel
from stratadesk.errors import UnsupportedModelError, UsageError

if TYPE_CHECKING:
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.engine.gguf_file import GgufFile
    from stratadesk.engine.vram.plan_settings import PlanSettings


def card_need(gguf: GgufFile, settings: EngineSettings) -> tuple[int, int]:
    """Bytes of a real card that the model in `gguf` takes, and tokens that its context holds.

    Raises:
        GgufError: the file is unsound.
        UnsupportedModelError, UsageError: what loading refuses without having seen the card.
    """
    from stratadesk.engine.cuda_loading import CardPlaces
    from stratadesk.kernels.cuda.cubins import Kernels
    from stratadesk.kernels.cuda.device import Device

    places = CardPlaces(gguf, settings)
    return places.lay_out(Device(0, "no card", "", 0, 0, None), Kernels()).mapped, places.context


def resident_model(
    gguf: GgufFile, settings: PlanSettings, free: int, refused: tuple[str, ...] = ()
) -> ResidentModel:
    """Lay the model in `gguf` out as loading it onto a card does; `free` is in bytes.

    Whatever loading refuses without having seen the card is told by `ResidentModel.why_not`.
    `refused` are flags that it would refuse.

    Raises:
        GgufError: the file is unsound.
    """
    from stratadesk.engine.commands import EngineSettings
    from stratadesk.kernels.cuda.ops import MOST_TOKENS

    wanted = EngineSettings(
        max_context=settings.max_context, kv_format=settings.kv_format, mtp=settings.mtp
    )
    try:
        needed, context = card_need(gguf, wanted)
    except (UnsupportedModelError, UsageError) as error:
        return ResidentModel(settings.reserve, free, why_not=error.sentence, refused=refused)
    return ResidentModel(settings.reserve, free, context, MOST_TOKENS, needed, refused=refused)
