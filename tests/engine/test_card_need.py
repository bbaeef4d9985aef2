"""Guards against a plan that promises a load onto a real card which loading then refuses.

What is said without a card is compared with what loading takes on one that only counts.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from stratadesk.engine import cuda_loading
from stratadesk.engine.card_need import resident_model
from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.cuda_loading import CardContents
from stratadesk.engine.forecast import forecast
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.load_report import LoadReport
from stratadesk.engine.loading import load_model
from stratadesk.engine.protocols import tell_nobody
from stratadesk.engine.vram.plan_settings import PlanSettings
from stratadesk.errors import MemoryShortageError, UsageError
from stratadesk.kernels.cuda.cubins import Kernels
from stratadesk.kernels.cuda.device import Device as Card
from stratadesk.units import MIB
from tests.conftest import DATA_DIR
from tests.engine.test_cuda_loading import MODELS, DryOps, Memory
from tests.tiny_models import FAMILIES, tiny_model

RESERVE = 100 * MIB


def loaded_with(
    free: int, path: Path, settings: EngineSettings, monkeypatch: pytest.MonkeyPatch
) -> CardContents:
    """Load onto a dry card with `free` bytes."""
    card = Card(0, "A dry card", "sm_89", 1 << 40, 24, None)
    with monkeypatch.context() as patch:
        patch.setattr(cuda_loading, "open_device", lambda: card)
        patch.setattr(cuda_loading, "CudaMemory", Memory)
        patch.setattr(cuda_loading.cuda, "CudaOps", DryOps)
        patch.setattr(Kernels, "load", lambda *_: None)
        patch.setattr(Card, "free", lambda _: free)
        report = LoadReport(tell_nobody, "dry")
        return CardContents(GgufFile.open(path), settings, {"F32"}, report)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("context", [0, 64])
def test_what_is_needed_is_what_loading_takes_to_the_byte(
    path: Path, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = PlanSettings(reserve=RESERVE, max_context=context, kv_format=KvFormat.Q8_0)
    settings = EngineSettings(max_context=context, kv_format=KvFormat.Q8_0, plan=chosen)
    with GgufFile.open(path) as gguf:
        needed = resident_model(gguf, chosen, 0).needed
        just = resident_model(gguf, chosen, needed + RESERVE)
        short = resident_model(gguf, chosen, needed + RESERVE - 1)
    assert (just.fits, short.fits) == (True, False)
    card = loaded_with(just.free, path, settings, monkeypatch)
    assert (card.arena.end, card.context) == (needed, just.context)
    with pytest.raises(MemoryShortageError):
        loaded_with(short.free, path, settings, monkeypatch)


def test_a_family_that_no_card_computes_is_named_and_fits_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "olmoe.gguf"
    path.write_bytes(tiny_model("olmoe", FAMILIES["olmoe"]).build())
    with GgufFile.open(path) as gguf:
        told = resident_model(gguf, PlanSettings(reserve=0), 1 << 40, ("--force",))
    assert not told.fits
    assert "does not load it: olmoe is not computed on a graphics card yet;" in told.text
    figures: dict[str, Any] = told.as_json()
    assert (figures["fits"], figures["needed_bytes"], figures["context"]) == (False, None, None)
    assert figures["why_not"].startswith("olmoe")
    assert figures["refused_flags"] == ["--force"]
    foreseen = forecast(path, EngineSettings(device=Device.CUDA))
    assert foreseen.trouble == figures["why_not"], "the settings foresee no load that is refused"
    assert forecast(path, EngineSettings(device=Device.HOST)).trouble == ""


def test_a_draft_block_is_not_loaded_there() -> None:
    with GgufFile.open(DATA_DIR / "models" / "qwen35moe-ud-q4k.gguf") as gguf:
        told = resident_model(gguf, PlanSettings(mtp=True), 1 << 40)
    assert "Drafts are not computed on a graphics card" in told.text
    with pytest.raises(UsageError, match="Drafts are not computed on a graphics card"):
        load_model(
            DATA_DIR / "models" / "qwen35moe-ud-q4k.gguf",
            EngineSettings(device=Device.CUDA, mtp=True),
            tell_nobody,
        )


def test_no_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with GgufFile.open(MODELS[0]) as gguf:
        assert resident_model(gguf, PlanSettings(), 1 << 40).fits
