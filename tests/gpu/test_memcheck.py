"""One pass of each family and a few written tokens, for a memory checker to watch.

Under a checker everything takes a hundred times as long: these are the smallest files there are.
"""

import numpy as np
import pytest

from stratadesk.engine.commands import Device, EngineSettings, SamplingSettings
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.loading import load_model
from stratadesk.kernels.cuda.ops import SUPPORTED
from tests.conftest import DATA_DIR
from tests.gpu.writing import TOKENS, written


def smallest(architecture: str) -> str:
    """The name of the smallest model of a family."""
    files = (DATA_DIR / "models").glob(f"{architecture}-*.gguf")
    return min(files, key=lambda path: path.stat().st_size).name


@pytest.mark.parametrize("architecture", SUPPORTED)
def test_a_pass_and_an_answer(architecture: str) -> None:
    path = DATA_DIR / "models" / smallest(architecture)
    settings = EngineSettings(device=Device.CUDA, poison=True)
    model = load_model(path, settings, lambda progress: None)
    assert isinstance(model, CudaModel)
    logits = model.forward(model.new_state(), TOKENS, logits="all")
    assert logits is not None
    assert np.isfinite(logits).all()
    assert len(written(model, SamplingSettings(), 4, set())) == 4
    model.close()
