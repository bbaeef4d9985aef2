"""Guards against numbers that are not llama.cpp's, and against results that depend on chunks."""

from pathlib import Path

import numpy as np
import pytest

from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_logits
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.tensor_formats import HOST_FORMATS
from tests.conftest import DATA_DIR, golden_folder
from tests.goldens import PROMPTS, Golden, names_with, tolerances
from tests.thorough import usual

FAMILIES = {
    "qwen3",
    "qwen3moe",
    "qwen35moe",
    "qwen3next",
    "olmoe",
    "glm4moe",
    "gpt-oss",
    "deepseek2",
    "qwen4exp",
}
CHUNKS = (1, 7, 64)
# The prompts that are also read cut up, and how: the chat, and the longest, random ids.
CUT_UP = usual({2: (1,), 3: (7, 64)}, thorough={2: CHUNKS, 3: CHUNKS})
# The prompts that are continued: the first, and the chat.
CONTINUED = usual((0, 2), thorough=tuple(PROMPTS))
# How many greedy positions, of all models together, may be left undecided by their margin.
MOST_UNDECIDED = 0.02


def golden_models() -> list[Golden]:
    """All computable golden models, from the golden folder where it is, else the small copies."""
    folder = golden_folder() or DATA_DIR
    here = {path.stem for path in (folder / "models").glob("*.gguf")}
    names = names_with(folder, FAMILIES, set(HOST_FORMATS))
    return [Golden(folder, name) for name in names if name in here]


def load(path: Path, kv_format: KvFormat = KvFormat.F32) -> LoadedModel:
    settings = EngineSettings(kv_format=kv_format)
    return load_model(path, settings, lambda progress: None)


@pytest.fixture(params=golden_models(), ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    found: Golden = request.param
    return found


def test_all_models_of_the_golden_folder_are_compared(golden_dir: Path) -> None:
    assert len(names_with(golden_dir, FAMILIES, set(HOST_FORMATS))) == len(golden_models()) >= 17


def test_logits_are_exact_and_do_not_depend_on_chunks(golden: Golden) -> None:
    model = load(golden.path)
    for prompt in PROMPTS:
        tokens = golden.tokens(prompt)
        whole = compute_logits(model, tokens, len(tokens))
        assert golden.largest_difference(prompt, whole) <= golden.tolerance
        for chunk in CUT_UP.get(prompt, ()):
            assert np.array_equal(compute_logits(model, tokens, chunk), whole)


def test_greedy_continuations_are_equal_where_margins_decide(golden: Golden) -> None:
    """The reference's tokens are fed at every step, so each position is compared by itself."""
    model = load(golden.path)
    for prompt in CONTINUED:
        wanted = golden.result(prompt, "exact_greedy").tolist()
        decided = golden.decided(prompt)
        state = model.new_state()
        logits = model.forward(state, golden.tokens(prompt), logits="last")
        for step, token in enumerate(wanted):
            assert logits is not None
            if decided[step]:
                assert int(logits.argmax()) == token, f"prompt {prompt}, step {step}"
            if step + 1 < len(wanted):
                logits = model.forward(state, [token], logits="last")
        assert logits is not None
        last = golden.result(prompt, "exact_greedy_last_logits")
        assert np.abs(logits - last).max() <= golden.tolerance


def test_few_greedy_positions_are_left_undecided_by_their_margins() -> None:
    decided = {
        golden.name: np.concatenate([golden.decided(prompt) for prompt in PROMPTS])
        for golden in golden_models()
    }
    for name, positions in decided.items():
        print(f"{name}: {np.count_nonzero(~positions)} of {positions.size} positions undecided")
    assert np.concatenate(list(decided.values())).mean() >= 1 - MOST_UNDECIDED


def test_a_half_precision_cache_stays_within_its_own_tolerance(data_dir: Path) -> None:
    golden = Golden(data_dir, "qwen3moe-iq4_xs")
    allowed = tolerances(data_dir)["f16_kv"] * golden.sigma
    model = load(golden.path, KvFormat.F16)
    for prompt in PROMPTS:
        logits = compute_logits(model, golden.tokens(prompt), 64)
        assert golden.tolerance < golden.largest_difference(prompt, logits) <= allowed


@pytest.mark.parametrize("name", ["qwen3moe-iq4_xs", "qwen35moe-ud-q4k", "qwen3-tied-q6_k"])
def test_three_hundred_tokens_have_the_same_bits_in_any_chunks(name: str, data_dir: Path) -> None:
    check_chunks(Golden(data_dir, name))


@pytest.mark.parametrize(
    "name", ["qwen3next-q4_k", "olmoe-q8_0", "glm4moe-q4_k", "gptoss-f16-small"]
)
def test_three_hundred_tokens_of_other_families_too(name: str, golden_dir: Path) -> None:
    check_chunks(Golden(golden_dir, name))


def check_chunks(golden: Golden) -> None:
    model = load(golden.path)
    tokens = np.random.default_rng(300).integers(0, model.vocab_size, 300).tolist()
    whole = compute_logits(model, tokens, 300)
    for chunk in CHUNKS:
        assert np.array_equal(compute_logits(model, tokens, chunk), whole)
