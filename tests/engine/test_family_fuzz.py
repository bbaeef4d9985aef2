"""Guards against damage that only one family's header or tensors can have: 1,800 mutations.

Each file, whole or split, must end in one sentence or in a model that computes three tokens;
never in another exception, in more than a second, or in much more memory than the file has bytes.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stratadesk.engine.architectures import SUPPORTED
from stratadesk.engine.commands import EngineSettings, KvFormat
from stratadesk.engine.loading import load_model
from stratadesk.kernels.host.warm_up import warm_up
from tests.engine.fuzzing import damaged, damaged_shards, outcome, use_everything, write_shards
from tests.tiny_models import FAMILIES, shards, tiny_model

WHOLE, SPLIT = 150, 50
BLOCKS_OF_32 = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"}
"""Formats that a damaged tensor of so narrow a model may turn into."""

RESIDENT_BYTES = 128 * 1024 * 1024
"""How much the process may grow over all mutations of a family; arenas are not traced."""


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Compile or load the kernels once: they are no part of what is limited here."""
    warm_up(BLOCKS_OF_32, KvFormat.F16.upper(), lambda done, total: None)


def drafts(name: str) -> bool:
    return "nextn_predict_layers" in FAMILIES[name]


def peak_bytes() -> int:
    """The most memory that this process has had resident; 0 where nobody counts."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0
    found = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) * 1024


def seeded(name: str, kind: str, count: int) -> Iterator[tuple[str, random.Random]]:
    for number in range(count):
        seed = f"{name} {kind} {number}"
        yield seed, random.Random(seed)


def judged(path: Path, name: str, seed: str) -> str:
    try:
        return outcome(path, mtp=drafts(name))
    except BaseException as error:
        error.add_note(f"seed {seed!r}")
        raise


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_sound_model_computes_the_same_whole_and_split(name: str, tmp_path: Path) -> None:
    whole = tiny_model(name)
    found = []
    for path in (
        whole.write(tmp_path / "tiny.gguf"),
        write_shards(tmp_path, [shard.build() for shard in shards(whole, 3)]),
    ):
        use_everything(path, mtp=drafts(name))
        model = load_model(path, EngineSettings(max_context=16), lambda progress: None)
        found.append(model.forward(model.new_state(), [5, 6, 7, 8, 9], logits="all"))
        model.close()
    assert np.isfinite(found[0]).all()
    assert found[0].std() > 0.05
    assert np.array_equal(*found)


@pytest.mark.parametrize("name", SUPPORTED)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    whole, path = tiny_model(name), tmp_path / "tiny.gguf"
    use_everything(whole.write(path), mtp=drafts(name))
    before = peak_bytes()
    sentences = []
    for seed, rng in seeded(name, "whole", WHOLE):
        path.write_bytes(damaged(whole, rng))
        sentences.append(judged(path, name, seed))
    assert peak_bytes() - before < RESIDENT_BYTES
    usable = sentences.count("")
    assert 0.1 * WHOLE < usable < 0.5 * WHOLE
    assert len(Counter(sentences)) > 0.4 * WHOLE


@pytest.mark.parametrize("name", SUPPORTED)
def test_damaged_split_files(name: str, tmp_path: Path) -> None:
    whole = tiny_model(name)
    path = write_shards(tmp_path, [shard.build() for shard in shards(whole, 3)])
    use_everything(path, mtp=drafts(name))
    sentences = []
    for seed, rng in seeded(name, "split", SPLIT):
        write_shards(tmp_path, damaged_shards(whole, rng))
        sentences.append(judged(path, name, seed))
    assert 0 < sentences.count("") < 0.5 * SPLIT
    assert len(Counter(sentences)) > 0.3 * SPLIT
