"""Guards against numbers of a model on the card that are not llama.cpp's, where there is no card.

With STRATADESK_EMULATE_ALL every golden model of the families that the card computes, which takes
five minutes; else those that tests always have.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from stratadesk.engine.commands import KvFormat
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.kernels.cuda.ops import SUPPORTED
from stratadesk.kernels.cuda.programs import FORMATS
from tests.conftest import DATA_DIR, golden_folder
from tests.engine.test_cuda_emulated import device
from tests.goldens import Golden, names_with
from tests.gpu.losing import on_card
from tests.kernels.cuda.emulation.kernels import COMPILER

__all__ = ["device"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

ALL = bool(os.environ.get("STRATADESK_EMULATE_ALL"))
FOLDER: Path = golden_folder() or DATA_DIR
HERE = {path.stem for path in (FOLDER if ALL else DATA_DIR).joinpath("models").glob("*.gguf")}
NAMES = [name for name in names_with(FOLDER, set(SUPPORTED), set(FORMATS)) if name in HERE]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_exact_and_the_same_in_any_windows(name: str) -> None:
    golden = Golden(FOLDER, name)
    model = load_model(golden.path, on_card(kv_format=KvFormat.F32), lambda progress: None)
    assert isinstance(model, CudaModel)
    for prompt in (0, 1) if ALL else (0,):
        tokens = golden.tokens(prompt)
        whole = compute_logits(model, tokens, len(tokens))
        share = golden.largest_difference(prompt, whole) / golden.tolerance
        print(f"{name} prompt {prompt}: {share:.2%} of the tolerance")
        assert share <= 0.1
    few = tokens[:7]
    for window in (1, 3):
        assert np.array_equal(compute_logits(model, few, window), whole[: len(few)])
    model.close()
