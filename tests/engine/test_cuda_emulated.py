"""Guards against a model on the card that computes something else, where there is no card.

Whole passes, through graphs, with the kernels run on the CPU by an emulator.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratadesk.engine import cuda_loading
from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.cuda_loading import CardContents
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.kernels.cuda import ops as cuda_ops
from stratadesk.kernels.cuda.tensors import LINE
from tests.kernels.cuda.emulation.bench import EmulatedOps, emulated_device
from tests.kernels.cuda.emulation.kernels import COMPILER, EmulatedKernels
from tests.tiny_models import FAMILIES, tiny_model

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

LARGER = {
    "attention.key_length": 64,
    "attention.value_length": 64,
    "ssm.state_size": 32,
    "ssm.inner_size": 64,
}
"""Sizes that there are kernels for, in place of the tiny models' own."""

TOKENS = [5, 9, 2, 200, 31, 7, 7, 90, 14, 3]


class Memory:
    """A card's memory in the host's, every byte of a NaN at first."""

    def __init__(self, device: Any, block_bytes: int, *, poison: bool) -> None:
        self.block_bytes = block_bytes

    def reserve(self, n_bytes: int) -> None:
        self.kept = np.full(n_bytes + LINE, 0xFF, np.uint8)
        self.address = -(-self.kept.ctypes.data // LINE) * LINE

    def map_block(self, index: int) -> None:
        """It is there already."""

    def release(self) -> None:
        """It goes with the object."""


class Copy:
    """A host copy that kernels read."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = np.concatenate([data.reshape(-1), np.zeros(64, np.uint8)])
        self.address = self.data.ctypes.data

    def release(self) -> None:
        """It goes with the object."""


class Kernels(EmulatedKernels):
    def load(self, *_: Any) -> None:
        """They are compiled when they are first called."""


@pytest.fixture(autouse=True)
def emulated_card(monkeypatch: pytest.MonkeyPatch) -> None:
    device = emulated_device()
    monkeypatch.setattr(cuda_loading, "open_device", lambda: device)
    monkeypatch.setattr(cuda_loading, "CudaMemory", Memory)
    monkeypatch.setattr(cuda_loading, "MappedCopy", Copy)
    monkeypatch.setattr(cuda_loading, "Kernels", Kernels)
    monkeypatch.setattr(cuda_loading.cuda, "CudaOps", EmulatedOps)
    monkeypatch.setattr(type(device), "free", lambda _: 1 << 30)


@pytest.mark.parametrize("architecture", cuda_ops.SUPPORTED)
def test_logits_are_the_hosts_in_any_windows(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    values = FAMILIES[architecture]
    values = {**values, **{key: size for key, size in LARGER.items() if key in values}}
    path.write_bytes(tiny_model(architecture, values).build())
    settings = EngineSettings(device=Device.HOST, kv_format=KvFormat.F32)
    host = load_model(path, settings, lambda progress: None)
    wanted = compute_logits(host, TOKENS, len(TOKENS))
    host.close()
    gguf = GgufFile.open(path)
    formats = {info.format.name for info in gguf.tensors.values()}
    model = CudaModel(CardContents(gguf, settings, formats, lambda done, total: None))
    whole = compute_logits(model, TOKENS, len(TOKENS))
    scale = np.abs(wanted).max()
    assert np.abs(whole - wanted).max() <= 2e-5 * scale
    for window in (1, 3):
        assert np.array_equal(compute_logits(model, TOKENS, window), whole)
    model.close()
