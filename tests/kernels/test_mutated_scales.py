"""Guards against golden files that would not notice a format's scale read with one wrong bit.

What such a decoder computes is what the true one computes from bytes with that bit flipped, so
nothing is compiled for it.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.engine.tensor_formats import format_by_name
from stratadesk.kernels.host.weights import HostWeight
from tests.goldens import Golden

LOWEST_BIT_OF_A_SCALE = {
    "Q4_0": (0, 0x01),
    "Q4_1": (0, 0x01),
    "Q5_1": (0, 0x01),
    "Q2_K": (5, 0x01),
    "Q3_K": (101, 0x01),
    "IQ1_S": (45, 0x10),
    "IQ1_M": (50, 0x08),
    "IQ2_XXS": (49, 0x10),
    "IQ2_XS": (68, 0x10),
    "IQ2_S": (76, 0x10),
    "IQ3_XXS": (89, 0x10),
    "IQ3_S": (108, 0x10),
    "MXFP4": (0, 0x01),
}
"""Byte of the block and mask: of the block's own scale, or of the scale of its sub-block 5."""

Bytes = npt.NDArray[np.uint8]


@pytest.fixture
def flipped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every weight of this format has the one bit flipped in all of its blocks."""
    name: str = request.param
    stored = format_by_name(name)
    assert stored is not None
    at, mask = LOWEST_BIT_OF_A_SCALE[name]
    wrap = HostWeight.wrap

    def wrap_flipped(data: Bytes, format_name: str, shape: tuple[int, ...]) -> HostWeight:
        if format_name == name:
            data = data.copy()
            data[at :: stored.block_bytes] ^= mask
        return wrap(data, format_name, shape)

    monkeypatch.setattr(HostWeight, "wrap", wrap_flipped)
    return name


@pytest.mark.parametrize("flipped", LOWEST_BIT_OF_A_SCALE, indirect=True)
def test_one_wrong_scale_bit_breaks_the_golden_comparison(flipped: str, golden_dir: Path) -> None:
    golden = Golden(golden_dir, f"qwen3moe-{flipped.lower()}")
    settings = EngineSettings(kv_format=KvFormat.F32)
    model = load_model(golden.path, settings, lambda progress: None)
    logits = compute_logits(model, golden.tokens(0), 64)
    difference = golden.largest_difference(0, logits)
    print(f"{golden.name}: {difference / golden.tolerance:.1f} times the tolerance")
    assert difference > golden.tolerance
