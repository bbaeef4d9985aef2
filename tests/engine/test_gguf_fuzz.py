"""Guards against damage nobody thought of: 500 seeded mutations of a file made by llama.cpp.

Each must end in an error in words or in a model that can be used; never in another exception,
in more than a second, or in more memory than the file has bytes. `test_family_fuzz` damages
models of all families.
"""

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from tests.engine.fuzzing import outcome, use_everything

INTERESTING = (0, 1, 7, 2**16, 2**31 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)

Mutation = Callable[[bytearray, random.Random], None]


@pytest.fixture(scope="module")
def small_model(request: pytest.FixtureRequest) -> Path:
    return Path(__file__).parents[1] / "data" / "models" / "qwen3moe-iq4_xs.gguf"


def header_bytes(path: Path) -> int:
    return min(int(tensor.data_offset) for tensor in GGUFReader(path).tensors)


def length_fields(path: Path) -> list[int]:
    """Offsets of all 64-bit numbers of the header: counts, lengths, dimensions, offsets."""
    reader = GGUFReader(path)
    fields = [field for key, field in reader.fields.items() if not key.startswith("GGUF.")]
    offsets = [8, 16]
    for field in fields + [tensor.field for tensor in reader.tensors]:
        position = field.offset
        for part in field.parts:
            if part.dtype == np.uint64:
                offsets += range(position, position + part.nbytes, 8)
            position += part.nbytes
    return offsets


def outcomes(original: Path, folder: Path, seeds: range, mutate: Mutation) -> Iterator[str]:
    content = original.read_bytes()
    path = folder / "mutated.gguf"
    for seed in seeds:
        mutated = bytearray(content)
        mutate(mutated, random.Random(seed))
        path.write_bytes(mutated)
        try:
            yield outcome(path)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.fixture(scope="module", autouse=True)
def warm(small_model: Path) -> None:
    """Compile or load the kernels once: they are no part of what is limited here."""
    use_everything(small_model)


def test_the_original_is_sound(small_model: Path) -> None:
    assert outcome(small_model) == ""


def test_flipped_bits(small_model: Path, tmp_path: Path) -> None:
    end = header_bytes(small_model)

    def flip(content: bytearray, rng: random.Random) -> None:
        for _ in range(rng.choice((1, 1, 1, 8, 64))):
            position = rng.randrange(rng.choice((512, end, end, len(content))))
            content[position] ^= 1 << rng.randrange(8)

    sentences = list(outcomes(small_model, tmp_path, range(200), flip))
    assert 20 < sum(map(bool, sentences)) < 180


def test_bits_of_the_tensor_table(small_model: Path, tmp_path: Path) -> None:
    end = header_bytes(small_model)

    def flip(content: bytearray, rng: random.Random) -> None:
        content[rng.randrange(end - 1700, end)] ^= 1 << rng.randrange(8)

    sentences = list(outcomes(small_model, tmp_path, range(1000, 1100), flip))
    assert sum(map(bool, sentences)) > 50


def test_truncations(small_model: Path, tmp_path: Path) -> None:
    end = header_bytes(small_model)

    def cut(content: bytearray, rng: random.Random) -> None:
        del content[rng.randrange(rng.choice((64, end, len(content)))) :]

    sentences = list(outcomes(small_model, tmp_path, range(2000, 2100), cut))
    assert all(sentences)
    assert sum("truncated" in sentence for sentence in sentences) > 30


def test_length_fields(small_model: Path, tmp_path: Path) -> None:
    fields = length_fields(small_model)
    end = header_bytes(small_model)
    few = [field for field in fields if field > end - 1700] + fields[:40]

    def edit(content: bytearray, rng: random.Random) -> None:
        field = rng.choice(rng.choice((fields, few)))
        (value,) = struct.unpack_from("<Q", content, field)
        new = rng.choice((*INTERESTING, value + 1, max(0, value - 1), value * 2, value ^ 2**60))
        struct.pack_into("<Q", content, field, new % 2**64)

    sentences = list(outcomes(small_model, tmp_path, range(3000, 3100), edit))
    assert sum(map(bool, sentences)) > 80
