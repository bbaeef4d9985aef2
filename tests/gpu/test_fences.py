"""Guards against kernels that write or read beyond their tensors: fences in place of a checker."""

import numpy as np
import pytest

from stratadesk.engine.commands import SamplingSettings
from stratadesk.engine.logits import compute_logits
from tests.goldens import Golden
from tests.gpu.conftest import golden_models
from tests.gpu.fences import broken, fenced
from tests.gpu.test_golden import load
from tests.gpu.writing import written


@pytest.mark.parametrize("golden", golden_models(), ids=lambda golden: golden.name)
def test_nothing_is_written_or_read_beyond_a_tensor(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, tokens = load(golden), golden.tokens(2)
    wanted = compute_logits(plain, tokens, 8)
    plain.close()
    fenced(monkeypatch)
    model = load(golden)
    for window in (8, 3, 1):
        assert np.array_equal(compute_logits(model, tokens, window), wanted)
    written(model, SamplingSettings(temperature=1.0, seed=5), 8, set())
    assert broken(model.contents.ops) == []
    model.close()
