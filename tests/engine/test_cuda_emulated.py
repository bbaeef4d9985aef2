"""Guards against a model on the card that computes something else, where there is no card.

Whole passes, through graphs, with the kernels run on the CPU by an emulator.
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratadesk.engine import cuda_loading
from stratadesk.engine.commands import Device, EngineSettings, KvFormat, SamplingSettings
from stratadesk.engine.cuda_loading import CardContents
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.events import LoadProgress
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.load_report import LoadReport
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.engine.protocols import tell_nobody
from stratadesk.engine.sampler import Sampler
from stratadesk.errors import MemoryShortageError
from stratadesk.kernels.cuda import ops as cuda_ops
from stratadesk.kernels.cuda.loss import LOSS
from stratadesk.kernels.cuda.tensors import LINE
from tests.gpu.fences import Fenced, broken, fenced
from tests.gpu.losing import lose_for_good, on_card, tokens_in_peace
from tests.gpu.writing import TOKENS, sampled, stop_everywhere, written
from tests.kernels.cuda.emulation.bench import EmulatedOps, emulated_device
from tests.kernels.cuda.emulation.kernels import COMPILER, EmulatedKernels
from tests.thorough import usual
from tests.tiny_models import FAMILIES, tiny_model
from tools.bench_writing import measure

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

LAUNCH_FAILURE = 719

LARGER = {
    "attention.key_length": 64,
    "attention.value_length": 64,
    "ssm.state_size": 32,
    "ssm.inner_size": 64,
}
"""Sizes that there are kernels for, in place of the tiny models' own."""


class Memory:
    """A card's memory in the host's, every byte of a NaN at first; `open` counts them."""

    open = 0

    def __init__(self, device: Any, block_bytes: int, *, poison: bool) -> None:
        self.block_bytes = block_bytes

    def reserve(self, n_bytes: int) -> None:
        Memory.open += 1
        self.kept = np.full(n_bytes + LINE, 0xFF, np.uint8)
        self.address = -(-self.kept.ctypes.data // LINE) * LINE

    def map_block(self, index: int) -> None:
        """It is there already."""

    def release(self) -> None:
        Memory.open -= 1


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
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    device = emulated_device()
    monkeypatch.setenv("STRATADESK_EMULATION_ORDER", "1")
    monkeypatch.setattr(cuda_loading, "open_device", lambda: device)
    monkeypatch.setattr(cuda_loading, "CudaMemory", Memory)
    monkeypatch.setattr(cuda_loading, "MappedCopy", Copy)
    monkeypatch.setattr(cuda_loading, "Kernels", Kernels)
    monkeypatch.setattr(cuda_loading.cuda, "CudaOps", EmulatedOps)
    monkeypatch.setattr(type(device), "free", lambda _: 1 << 30)
    return device


def tiny(architecture: str, folder: Path) -> Path:
    path = folder / "tiny.gguf"
    values = FAMILIES[architecture]
    values = {**values, **{key: size for key, size in LARGER.items() if key in values}}
    path.write_bytes(tiny_model(architecture, values).build())
    return path


def card_model(path: Path, **fields: Any) -> CudaModel:
    gguf = GgufFile.open(path)
    settings = EngineSettings(kv_format=KvFormat.F32, **fields)
    formats = {info.format.name for info in gguf.tensors.values()}
    return CudaModel(CardContents(gguf, settings, formats, LoadReport(tell_nobody, "tiny")))


@pytest.mark.parametrize("architecture", cuda_ops.SUPPORTED)
def test_logits_are_the_hosts_in_any_windows(architecture: str, tmp_path: Path) -> None:
    path = tiny(architecture, tmp_path)
    settings = EngineSettings(device=Device.HOST, kv_format=KvFormat.F32)
    host = load_model(path, settings, lambda progress: None)
    wanted = compute_logits(host, TOKENS, len(TOKENS))
    host.close()
    model = card_model(path)
    whole = compute_logits(model, TOKENS, len(TOKENS))
    assert np.abs(whole - wanted).max() <= 2e-5 * np.abs(wanted).max()
    for window in (1, 3):
        assert np.array_equal(compute_logits(model, TOKENS, window), whole)
    model.close()


@pytest.mark.parametrize("architecture", cuda_ops.SUPPORTED)
def test_tokens_drawn_ahead_are_those_the_host_draws(architecture: str, tmp_path: Path) -> None:
    model = card_model(tiny(architecture, tmp_path))
    for how in (SamplingSettings(temperature=0.0), SamplingSettings(temperature=1.5, seed=3)):
        assert written(model, how, 20, set()) == sampled(model, how, 20)
    model.close()


@pytest.mark.parametrize("architecture", cuda_ops.SUPPORTED)
def test_another_turn_finds_what_is_held(architecture: str, tmp_path: Path) -> None:
    model = card_model(tiny(architecture, tmp_path))
    stop_everywhere(model, usual(7, thorough=12))
    model.close()


def test_the_context_can_be_filled_to_its_end(tmp_path: Path) -> None:
    model = card_model(tiny("qwen3moe", tmp_path))
    room = model.context - len(TOKENS)
    assert len(written(model, SamplingSettings(temperature=0.0), room + 1, set())) == room + 1
    model.close()


@pytest.mark.parametrize("architecture", cuda_ops.SUPPORTED)
def test_nothing_is_written_or_read_beyond_a_tensor(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(architecture, tmp_path)
    plain = card_model(path)
    wanted = compute_logits(plain, TOKENS, 3)
    plain.close()
    fenced(monkeypatch)
    model = card_model(path)
    assert np.array_equal(compute_logits(model, TOKENS, 3), wanted)
    written(model, SamplingSettings(temperature=1.0, seed=5), 6, set())
    assert len(Fenced.made) == 6
    assert sum(len(space.fences) for space in Fenced.made) > 100
    assert broken(model.contents.ops) == []
    somewhere = Fenced.made[-1].fences[0][0]
    ctypes.memset(somewhere, 0, 1)
    assert len(broken(model.contents.ops)) == 1
    model.close()


def test_the_host_waits_once_a_token(tmp_path: Path) -> None:
    model = card_model(tiny("qwen3", tmp_path), max_context=128)
    figures = measure(model, 40)
    assert figures["waits"] == 1
    assert 0 < figures["waited_us"] + figures["host_us"] <= figures["us"] * 1.001
    model.close()


def test_penalties_are_the_hosts(tmp_path: Path) -> None:
    model = card_model(tiny("qwen3", tmp_path))
    state = model.new_state()
    for how in (
        SamplingSettings(repeat_penalty=1.1),
        SamplingSettings(presence_penalty=0.5),
        SamplingSettings(top_k=0),
    ):
        assert model.writer(state, Sampler(how), set()) is None
    model.close()


def test_a_lost_card_stays_lost_to_the_process_and_the_host_computes(
    tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOSS, "why", "")

    def lose(_model: Any) -> None:
        device.stream.failing = LAUNCH_FAILURE

    def opened() -> Any:
        LOSS.check()
        return device

    monkeypatch.setattr(cuda_loading, "open_device", opened)
    path, settings = tiny("qwen3", tmp_path), on_card(kv_format=KvFormat.F32)
    wanted = lose_for_good(path, settings, lose)
    monkeypatch.setattr(LOSS, "why", "")
    device.stream.failing = 0
    assert tokens_in_peace(path, settings) == wanted


def test_each_piece_that_is_copied_is_told_and_may_be_the_last(tmp_path: Path) -> None:
    told: list[LoadProgress] = []
    load_model(tiny("qwen3", tmp_path), on_card(kv_format=KvFormat.F32), told.append).close()
    copied = [step for step in told if step.stage == "Copying weights to the card"]
    assert len(copied) > 10
    assert 0 == copied[0].done < copied[-1].done < copied[-1].total
    assert {step.unit for step in copied} == {"bytes"}

    def give_up(step: LoadProgress) -> None:
        if step.stage == copied[0].stage and step.done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        load_model(tiny("qwen3", tmp_path), on_card(kv_format=KvFormat.F32), give_up)
    assert Memory.open == 0


@pytest.mark.parametrize(
    ("free", "helps"),
    [
        (100, "Choose --vram-reserve-mib 68 or less, a smaller --max-context"),
        (31, "Choose a smaller model"),
    ],
)
def test_a_reserve_that_is_in_the_way_is_named(
    free: int, helps: str, device: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(type(device), "free", lambda _: free << 20)
    with pytest.raises(MemoryShortageError) as refused:
        card_model(tiny("qwen3", tmp_path))
    assert refused.value.remedy.startswith(helps)
