"""Guards against families whose tensors, states or draft block the plan does not know.

A region that is too small ends in an error while loading or computing; one that is too large
takes slots away. So what is used is compared with what was planned, in bytes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.loading import load_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.vram.buffers import HOST_RULE, PromptBuffers
from stratadesk.engine.vram.geometry import aligned
from stratadesk.engine.vram.machine_facts import MachineFacts
from stratadesk.engine.vram.plan_settings import HeadAlias, Layout, PlanSettings
from stratadesk.units import MIB
from tests.goldens import Golden
from tests.test_golden_logits import golden_models

CHUNK = 64


def load(path: Path, *, mtp: bool) -> LoadedModel:
    plan = PlanSettings(
        reserve=0,
        alias=HeadAlias.OFF,
        prefill_layout=Layout.FIXED,
        short_read=0,
        mtp=mtp,
        block_bytes=4_096,
    )
    settings = EngineSettings(
        max_context=512,
        chunk=CHUNK,
        plan=plan,
        machine=MachineFacts(card=32 * MIB, desktop=0, context=0),
        poison=True,
    )
    return load_model(path, settings, lambda _: None)


def dense_bytes(path: Path, *, mtp: bool) -> int:
    """Bytes of all tensors that stay on the card, told from the file by another road."""
    with GgufFile.open(path) as gguf:
        total = gguf.get_int(f"{gguf.architecture}.block_count")
        drafts = gguf.get_int(f"{gguf.architecture}.nextn_predict_layers", 0)
        left_out = () if mtp else tuple(f"blk.{total - 1 - i}." for i in range(drafts))
        tied = "output.weight" not in gguf.tensors
        return sum(
            aligned(info.n_bytes)
            for name, info in gguf.tensors.items()
            if not name.startswith(left_out)
            and not name.endswith("_exps.weight")
            and name != "output.weight"
            and not name.startswith("per_layer_token_embd.")
            and (tied or name != "token_embd.weight")
        )


def peak(model: LoadedModel, tokens: int) -> int:
    """Bytes that the workspace of a prompt had in use at most."""
    model.begin_request(tokens)
    workspace: Any = model._ops.workspace
    workspace.peak = 0
    ids = np.random.default_rng(tokens).integers(0, 1_500, tokens).tolist()
    model.forward(model.new_state(), ids, logits="none")
    model.recover()
    return int(workspace.peak)


def check(golden: Golden, *, mtp: bool) -> None:
    model = load(golden.path, mtp=mtp)
    parts = model.memory.plan.parts
    assert parts.dense == dense_bytes(golden.path, mtp=mtp)
    buffers = PromptBuffers(model.memory.plan.shape, HOST_RULE, mtp)
    for tokens in (CHUNK, 37):
        used = peak(model, tokens)
        planned = buffers.activations(tokens)
        print(f"{golden.name}, mtp {mtp}, {tokens} tokens: {used:,} of {planned:,} bytes")
        assert used <= planned <= 1.1 * used
    model.new_state()
    resident: Any = model._ops.resident
    assert parts.kv + parts.state - 4_096 <= resident.peak <= parts.kv + parts.state
    model.close()


def has_draft(golden: Golden) -> bool:
    return any("mtp" in key for key in golden.results.files)


@pytest.mark.parametrize("golden", golden_models(), ids=lambda golden: golden.name)
def test_what_a_model_uses_is_what_was_planned(golden: Golden) -> None:
    check(golden, mtp=False)


@pytest.mark.parametrize(
    "golden", [one for one in golden_models() if has_draft(one)], ids=lambda golden: golden.name
)
def test_a_draft_block_uses_what_was_planned(golden: Golden) -> None:
    check(golden, mtp=True)
