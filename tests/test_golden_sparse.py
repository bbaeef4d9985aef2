"""Guards against attention to the wrong blocks of tokens.

llama.cpp leaves ties to an unstable sort except at positions where the tail is as long as it can
be, so only those are compared with it, and layers before the sparse one everywhere. That chunks
change no bit is this engine's own promise and holds at all positions.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.engine.architectures.block_attention import BlockState
from stratadesk.engine.logits import compute_logits
from stratadesk.engine.tensor_formats import HOST_FORMATS
from tests.goldens import PROMPTS, SPARSE, Golden
from tests.test_golden_layers import CLEAR_MARGIN, record_experts
from tests.test_golden_logits import CHUNKS, load
from tests.vram.test_family_memory import check

BLOCK = 4
SPARSE_LAYER = 3


@pytest.fixture
def golden(golden_dir: Path) -> Golden:
    index = json.loads((golden_dir / "index.json").read_text())
    entry = next(entry for entry in index["models"] if SPARSE in entry["file"])
    missing = set(entry["tensor_types"]) - set(HOST_FORMATS)
    if missing:
        pytest.skip(f"{SPARSE} has tensors in {missing}, which this version cannot compute")
    return Golden(golden_dir, SPARSE)


def determined(tokens: int) -> npt.NDArray[np.intp]:
    return np.flatnonzero((np.arange(tokens) + 1) % BLOCK == BLOCK - 1)


def test_logits_are_exact_where_they_are_determined(golden: Golden) -> None:
    model = load(golden.path)
    for prompt in PROMPTS:
        tokens = golden.tokens(prompt)
        state = model.new_state()
        assert isinstance(state.layers[SPARSE_LAYER], BlockState)
        assert state.layers[SPARSE_LAYER].index is not None
        whole = compute_logits(model, tokens, len(tokens))
        stored = golden.result(prompt, "exact_positions")
        assert set(stored) - {0} <= set(determined(len(tokens)))
        difference = np.abs(whole[stored] - golden.result(prompt, "exact_logits")).max()
        assert difference <= golden.tolerance
        for chunk in CHUNKS:
            assert np.array_equal(compute_logits(model, tokens, chunk), whole)
    model.close()


def test_experts_are_those_of_llama_cpp(golden: Golden) -> None:
    model = load(golden.path)
    for prompt in PROMPTS:
        tokens, found = golden.tokens(prompt), list[npt.NDArray[np.int32]]()
        record_experts(model, found)
        compute_logits(model, tokens, len(tokens))
        del model._ops.route  # type: ignore[attr-defined]
        wanted = golden.result(prompt, "exact_experts")
        clear = golden.result(prompt, "exact_router_margin") > CLEAR_MARGIN
        for layer, experts in enumerate(found):
            every = layer < SPARSE_LAYER
            for t in range(len(tokens)) if every else determined(len(tokens)):
                assert not clear[layer, t] or set(experts[t]) == set(wanted[layer, t])
    model.close()


def test_what_the_model_uses_is_what_was_planned(golden: Golden) -> None:
    check(golden, mtp=False)


def test_three_hundred_tokens_have_the_same_bits_in_any_chunks(golden: Golden) -> None:
    """Far more blocks than the budget holds."""
    model = load(golden.path)
    tokens = np.random.default_rng(4).integers(0, model.vocab_size, 300).tolist()
    whole = compute_logits(model, tokens, 300)
    for chunk in (1, 6, 64):
        assert np.array_equal(compute_logits(model, tokens, chunk), whole)
    model.close()
