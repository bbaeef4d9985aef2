"""Guards against numbers on the card that are not llama.cpp's."""

import numpy as np
import pytest

from stratadesk.engine.commands import Device, EngineSettings, KvFormat
from stratadesk.engine.cuda_model import CudaModel
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from tests.goldens import PROMPTS, Golden
from tests.gpu.conftest import golden_models

WINDOWS = (1, 3, 8)


def load(golden: Golden, kv_format: KvFormat = KvFormat.F32) -> CudaModel:
    settings = EngineSettings(device=Device.CUDA, kv_format=kv_format, poison=True)
    model = load_model(golden.path, settings, lambda progress: None)
    assert isinstance(model, CudaModel)
    return model


@pytest.fixture(params=golden_models(), ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    found: Golden = request.param
    return found


def test_logits_are_exact_and_the_same_in_any_windows(golden: Golden) -> None:
    model = load(golden)
    for prompt in PROMPTS:
        tokens = golden.tokens(prompt)
        whole = compute_logits(model, tokens, len(tokens))
        share = golden.largest_difference(prompt, whole) / golden.tolerance
        print(f"{golden.name} prompt {prompt}: {share:.2%} of the tolerance")
        assert share <= 1
        for window in WINDOWS if prompt == 2 else ():
            assert np.array_equal(compute_logits(model, tokens, window), whole)
    model.close()


def test_greedy_continuations_are_equal_where_margins_decide(golden: Golden) -> None:
    model = load(golden)
    for prompt in PROMPTS:
        wanted = golden.result(prompt, "exact_greedy").tolist()
        state = model.new_state()
        logits = model.forward(state, golden.tokens(prompt), logits="last")
        for step, token in enumerate(wanted):
            assert logits is not None
            if golden.decided(prompt)[step]:
                assert int(logits.argmax()) == token, f"prompt {prompt}, step {step}"
            if step + 1 < len(wanted):
                logits = model.forward(state, [token], logits="last")
        last = golden.result(prompt, "exact_greedy_last_logits")
        assert np.abs(logits - last).max() <= golden.tolerance
    model.close()
