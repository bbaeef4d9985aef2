"""Guards against a pass that needs an operation the card has not, or more room than laid out.

Everything runs dry: addresses are given out, nothing is launched.
"""

from pathlib import Path
from typing import Any

import pytest

from stratadesk.engine import cuda_loading
from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.cuda_loading import CardContents
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.load_report import LoadReport
from stratadesk.engine.protocols import tell_nobody
from stratadesk.errors import MemoryShortageError, UnsupportedModelError
from stratadesk.kernels.cuda.cubins import Kernels
from stratadesk.kernels.cuda.device import Device
from stratadesk.kernels.cuda.ops import CudaOps
from stratadesk.units import MIB
from tests.conftest import DATA_DIR

MODELS = sorted((DATA_DIR / "models").glob("*.gguf"))
ADDRESS = 0x7F00_0000_0000


class DryOps(CudaOps):
    """Operations that are dry whatever they are told."""

    @property
    def dry(self) -> bool:  # type: ignore[override]
        return True

    @dry.setter
    def dry(self, value: bool) -> None:
        """Stay dry."""


class Memory:
    """Memory of a card that is not there."""

    def __init__(self, device: Device, block_bytes: int, *, poison: bool) -> None:
        self.block_bytes, self.address = block_bytes, ADDRESS
        self.mapped: set[int] = set()

    def reserve(self, n_bytes: int) -> None:
        """Take it."""

    def map_block(self, index: int) -> None:
        self.mapped.add(index)

    def release(self) -> None:
        self.mapped.clear()


@pytest.fixture(autouse=True)
def dry_card(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(0, "A dry card", "sm_89", 8_192 * MIB, 24, None)
    monkeypatch.setattr(cuda_loading, "open_device", lambda: device)
    monkeypatch.setattr(cuda_loading, "CudaMemory", Memory)
    monkeypatch.setattr(cuda_loading.cuda, "CudaOps", DryOps)
    monkeypatch.setattr(Kernels, "load", lambda *_: None)
    monkeypatch.setattr(Device, "free", lambda _: 7_000 * MIB)


def contents(path: Path, **settings: Any) -> CardContents:
    gguf = GgufFile.open(path)
    return CardContents(gguf, EngineSettings(**settings), {"F32"}, LoadReport(tell_nobody, "dry"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("kv_format", KvFormat)
def test_a_pass_of_every_family_fits_its_layout_exactly(path: Path, kv_format: KvFormat) -> None:
    card = contents(path, kv_format=kv_format)
    assert card.ops.workspace.peak <= card.layout.scratch <= card.ops.workspace.peak + 256
    assert card.ops.resident.used <= card.layout.resident
    end = card.ops.workspace.address + card.layout.scratch
    assert end == ADDRESS + card.layout.total <= ADDRESS + card.arena.end


def test_a_longer_context_takes_more_and_the_weights_stay() -> None:
    short, long = (contents(MODELS[0], max_context=n).layout for n in (64, 2_048))
    assert short.weights == long.weights
    assert short.resident < long.resident


def test_a_card_that_is_too_small_is_said_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "free", lambda _: 16 * MIB)
    with pytest.raises(
        MemoryShortageError, match="A dry card has 16 MiB free, and this model needs"
    ):
        contents(MODELS[0])


def test_rows_that_lanes_cannot_share_out_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product would leave the last values of each row out."""
    monkeypatch.setattr(cuda_loading.programs, "values_of_a_lane", lambda _: 7)
    with pytest.raises(UnsupportedModelError, match="values in F32; a graphics card multiplies 7"):
        contents(next(path for path in MODELS if path.stem.startswith("qwen35moe")))


def test_a_family_that_is_not_computed_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_loading.cuda, "SUPPORTED", ("qwen35moe",))
    path = next(path for path in MODELS if path.stem.startswith("qwen3moe"))
    with pytest.raises(UnsupportedModelError, match="qwen3moe is not computed on a graphics card"):
        contents(path)
