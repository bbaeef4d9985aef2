"""Guards against golden tests that would not notice: one wrong scale bit must break them."""

from dataclasses import replace
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from numba import njit

from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.kernels.host import decode_super
from stratadesk.kernels.host.formats import FORMATS
from stratadesk.kernels.host.kernel import specialise
from stratadesk.kernels.host.matmul import MATMUL_SIGNATURE, matmul
from tests.goldens import Golden

right_scale_and_min = decode_super._scale_and_min


@njit
def wrong_scale_and_min(scales: np.ndarray, sub_block: int) -> tuple[int, int]:
    """The true scale and minimum, but for the lowest bit of sub-block 5's scale."""
    scale, minimum = right_scale_and_min(scales, sub_block)
    return (scale ^ 1, minimum) if sub_block == 5 else (scale, minimum)


@pytest.fixture
def mutated_q4_k(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = {**vars(decode_super), "_scale_and_min": wrong_scale_and_min}
    mutated = FunctionType(decode_super.decode_q4_k.py_func.__code__, scope, "decode_q4_k_mutated")
    kernel = specialise(matmul, MATMUL_SIGNATURE, njit(mutated))
    monkeypatch.setitem(FORMATS, "Q4_K", replace(FORMATS["Q4_K"], matmul=kernel))


def worst(golden: Golden) -> float:
    settings = EngineSettings(kv_format=KvFormat.F32)
    model = load_model(golden.path, settings, lambda progress: None)
    return golden.largest_difference(0, compute_logits(model, golden.tokens(0), 64))


def test_the_golden_comparison_passes_with_the_true_kernel(data_dir: Path) -> None:
    golden = Golden(data_dir, "qwen35moe-ud-q4k")
    assert worst(golden) <= golden.tolerance


@pytest.mark.usefixtures("mutated_q4_k")
def test_the_golden_comparison_fails_with_one_wrong_scale_bit(data_dir: Path) -> None:
    golden = Golden(data_dir, "qwen35moe-ud-q4k")
    assert worst(golden) > golden.tolerance
