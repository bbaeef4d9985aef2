"""Guards against drafts that are not llama.cpp's, and against drafts that leave traces.

A draft head that is fed the state before the output norm, or of the wrong token, still writes
plausible logits; and KV rows of drafts that nobody accepts must not outlive them.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stratadesk.cli import main
from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.engine.logits import compute_drafted_logits, compute_logits
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import HeadAlias, PlanSettings
from stratadesk.errors import UsageError
from stratadesk.units import MIB
from tests.goldens import PROMPTS, Golden
from tests.test_golden_logits import golden_models
from tests.thorough import usual

CHAINED = 3
CUT_UP = usual({0: (1,), 2: (7,)}, thorough={0: (1, 7), 1: (7,), 2: (7,), 3: (7,)})
"""The prompts that are also read without drafts, and cut up, and how."""
KEY = "p0_exact_mtp_logits"


def drafting_models() -> list[Golden]:
    return [golden for golden in golden_models() if KEY in golden.results.files]


@pytest.fixture(params=drafting_models(), ids=lambda golden: golden.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    found: Golden = request.param
    return found


def load(path: Path, *, mtp: bool = True) -> LoadedModel:
    settings = EngineSettings(kv_format=KvFormat.F32, mtp=mtp)
    return load_model(path, settings, lambda progress: None)


def largest_difference(
    golden: Golden, prompt: int, logits: npt.NDArray[np.float32], kind: str
) -> float:
    stored = golden.result(prompt, f"exact_{kind}_positions")
    full = np.abs(logits[stored] - golden.result(prompt, f"exact_{kind}_logits")).max()
    top = np.take_along_axis(logits, golden.result(prompt, f"exact_{kind}_top_ids"), axis=1)
    difference = np.abs(top - golden.result(prompt, f"exact_{kind}_top_logits")).max()
    return max(float(full), float(difference))


def chain(model: LoadedModel, state: object, token: int) -> npt.NDArray[np.float32]:
    """Drafts after `token`, each from the best token of the one before."""
    rows = []
    for _ in range(CHAINED):
        rows.append(model.draft(state, token))  # type: ignore[arg-type]
        token = int(rows[-1].argmax())
    return np.stack(rows)


def test_every_family_with_a_draft_block_is_compared(golden_dir: Path) -> None:
    names = {golden.name.split("-")[0] for golden in drafting_models()}
    assert names >= {"qwen35moe", "qwen3next", "glm4moe", "deepseek2"}


def test_draft_logits_are_exact_and_do_not_depend_on_chunks(golden: Golden) -> None:
    model, plain = load(golden.path), load(golden.path, mtp=False)
    for prompt in PROMPTS:
        tokens = golden.tokens(prompt)
        logits, drafted = compute_drafted_logits(model, tokens, len(tokens))
        assert largest_difference(golden, prompt, drafted, "mtp") <= golden.tolerance
        if prompt in CUT_UP:
            assert np.array_equal(logits, compute_logits(plain, tokens, len(tokens)))
        for chunk in CUT_UP.get(prompt, ()):
            again = compute_drafted_logits(model, tokens, chunk)
            assert np.array_equal(again[0], logits)
            assert np.array_equal(again[1], drafted)
    model.close()
    plain.close()


def test_chained_drafts_are_exact_and_leave_no_trace(golden: Golden) -> None:
    model = load(golden.path)
    for prompt in PROMPTS:
        tokens = golden.tokens(prompt)
        first = int(golden.result(prompt, "exact_greedy")[0])
        state = model.new_state()
        model.forward(state, tokens, logits="none")
        drafted = chain(model, state, first)
        assert largest_difference(golden, prompt, drafted, "mtp_chain") <= golden.tolerance

        rejected = model.forward(state, [first], logits="last")
        after = chain(model, state, 7)

        state = model.new_state()
        model.forward(state, tokens, logits="none")
        assert np.array_equal(model.forward(state, [first], logits="last"), rejected)
        assert np.array_equal(chain(model, state, 7), after)
    model.close()


def test_drafts_on_a_small_card_have_the_same_bits(data_dir: Path) -> None:
    """The draft block's experts have slots too, and prompts lend head and slots."""
    golden = Golden(data_dir, "qwen35moe-ud-q4k")
    tokens = golden.tokens(0) * 4
    plan = PlanSettings(
        reserve=0, alias=HeadAlias.ON, short_read=0, mtp=True, block_bytes=4_096, expert_cache=13
    )
    settings = EngineSettings(
        max_context=512,
        kv_format=KvFormat.F32,
        plan=plan,
        machine=MachineFacts(card=16 * MIB, desktop=0, context=0),
        poison=True,
    )
    small, plain = load_model(golden.path, settings, lambda _: None), load(golden.path)
    assert small.memory.plan.geometry.layers == 5
    results = []
    for model in (small, plain):
        state = model.new_state()
        logits = model.forward(state, tokens, logits="last")
        assert logits is not None
        results.append(np.concatenate([logits[None], chain(model, state, int(logits.argmax()))]))
        model.close()
    assert np.array_equal(*results)


def test_the_command_writes_both_arrays(data_dir: Path, tmp_path: Path) -> None:
    golden, out = Golden(data_dir, "qwen35moe-ud-q4k"), tmp_path / "out.npz"
    tokens = " ".join(map(str, golden.tokens(0)))
    command = ["logits", "-m", str(golden.path), "--tokens", tokens, "-o", str(out)]
    assert main([*command, "--kv", "f32", "--mtp", "--chunk", "7"]) == 0
    with np.load(out) as arrays:
        assert sorted(arrays.files) == ["logits", "mtp_logits"]
        assert arrays["mtp_logits"].dtype == np.float32
        assert golden.largest_difference(0, arrays["logits"]) <= golden.tolerance
        assert largest_difference(golden, 0, arrays["mtp_logits"], "mtp") <= golden.tolerance
    assert main([*command, "--kv", "f32"]) == 0
    with np.load(out) as arrays:
        assert arrays.files == ["logits"]


def test_a_model_without_a_draft_block_says_so(data_dir: Path) -> None:
    with pytest.raises(UsageError, match="no block that drafts tokens"):
        load(data_dir / "models" / "qwen3moe-f16.gguf")


def test_a_draft_block_that_was_left_out_is_not_asked(data_dir: Path) -> None:
    model = load(data_dir / "models" / "qwen35moe-ud-q4k.gguf", mtp=False)
    state = model.new_state()
    model.forward(state, [1, 2, 3], logits="none")
    with pytest.raises(UsageError, match="without its draft head"):
        model.draft(state, 4)
    model.close()
