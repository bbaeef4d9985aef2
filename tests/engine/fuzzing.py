"""Running a damaged model within limits, and ways of damaging one."""

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stratadesk.engine.commands import EngineSettings, LoadModel
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.gguf_strings import StringArray
from stratadesk.engine.inspection import inspect_model
from stratadesk.engine.model import LoadedModel
from stratadesk.engine.runtime import open_runtime
from stratadesk.errors import StrataDeskError
from tests.gguf_builder import F32_TYPE, GgufBuilder
from tests.tiny_models import (
    BLOCK_BYTES,
    F16_TYPE,
    FAMILIES,
    VOCABULARY,
    encoded,
    shards,
    tiny_model,
)

SECONDS = 5.0
"""Of this process's CPU time, which other programs do not lengthen."""
SPARE_BYTES = 2 * 1024 * 1024
CONTEXT = 16

Damage = Callable[[GgufBuilder, random.Random], None]


def use_everything(path: Path, *, mtp: bool = False) -> None:
    """Read all metadata, load the file as the engine does, and compute three tokens."""
    with GgufFile.open(path) as gguf:
        for value in gguf.metadata.values():
            if isinstance(value, StringArray):
                value.to_list()
            elif isinstance(value, np.ndarray):
                value.tolist()
    inspect_model(path)
    command = LoadModel(path, EngineSettings(max_context=CONTEXT, mtp=mtp))
    runtime = open_runtime(command, lambda progress: None)
    try:
        with np.errstate(all="ignore"):
            compute(runtime.model, mtp=mtp)
    finally:
        runtime.close()


def compute(model: Any, *, mtp: bool) -> None:
    """Read two tokens at once and one more, then draft, and check the shape of the logits."""
    assert isinstance(model, LoadedModel)
    state, last = model.new_state(), min(1, model.vocab_size - 1)
    assert model.forward(state, [0, last], logits="all").shape == (2, model.vocab_size)
    if mtp:
        model.draft(state, 0)
    assert model.forward(state, [0], logits="last").shape == (model.vocab_size,)


def outcome(path: Path, *, mtp: bool = False) -> str:
    """Run within the limits and return the error's sentence, "" when all went well.

    A run beyond them is tried once more: what happens once a process, such as compiling a kernel
    that no file needed before, is not the file's.
    """
    most = (path.stat().st_size if path.exists() else 0) + SPARE_BYTES
    for _ in range(2):
        sentence, seconds, peak = _measured(path, mtp=mtp)
        if seconds < SECONDS and peak < most:
            return sentence
    assert seconds < SECONDS
    assert peak < most
    return sentence


def _measured(path: Path, *, mtp: bool) -> tuple[str, float, int]:
    """The sentence, seconds of the processor, and the most bytes that Python held at once."""
    tracemalloc.start()
    started = time.process_time()
    sentence = ""
    try:
        use_everything(path, mtp=mtp)
    except StrataDeskError as error:
        sentence = error.sentence
        assert sentence.strip()
        assert "\n" not in sentence
    seconds = time.process_time() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return sentence, seconds, peak


def copied(whole: GgufBuilder) -> GgufBuilder:
    """A model that can be damaged while `whole` stays as it is."""
    tensors = [replace(tensor) for tensor in whole.tensors]
    return replace(whole, entries=list(whole.entries), tensors=tensors)


def architecture_of(builder: GgufBuilder) -> str:
    """The family of a tiny model, which is said in no other words elsewhere."""
    prefix, _ = str(builder.entries[1][0]).split(".", 1)
    return prefix


ODD_VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 5, 7, 31, 33, 64, 255, 2**16, 2**31 - 1, 2**32 - 1),
    *(-1.0, 0.0, 0.5, 1.0, 3.0, 1e30, float("nan"), float("inf")),
    *(True, False, "", "yarn", "linear"),
    *([], [0], [-1, -1], [1, 2, 3, 4], [2**63, 2**63], [True, False], [0] * 70),
)

SMALL_VALUES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 48)


def wrong_value(builder: GgufBuilder, rng: random.Random) -> None:
    """One hyperparameter or number of the tokenizer is something else."""
    at = rng.randrange(1, len(builder.entries))
    builder.entries[at] = builder.entries[at][0], encoded(rng.choice(ODD_VALUES))


def missing_key(builder: GgufBuilder, rng: random.Random) -> None:
    """Any key is not there."""
    del builder.entries[rng.randrange(len(builder.entries))]


def near_values(builder: GgufBuilder, rng: random.Random) -> None:
    """Some hyperparameters are a little more or less, and all tensors as they were."""
    values = _varied(FAMILIES[architecture_of(builder)], rng)
    _tell(builder, values)


def another_model(builder: GgufBuilder, rng: random.Random) -> None:
    """Some hyperparameters are others and the tensors those that the family wants then."""
    values = _varied(FAMILIES[architecture_of(builder)], rng)
    _tell(builder, values)
    with suppress(StrataDeskError):
        made = tiny_model(architecture_of(builder), values)
        builder.entries, builder.tensors = made.entries, made.tensors


def wrong_dimensions(builder: GgufBuilder, rng: random.Random) -> None:
    """A tensor has other sizes; sometimes as many bytes as that takes."""
    tensor = rng.choice(builder.tensors)
    dims = list(tensor.dims)
    at = rng.randrange(len(dims))
    change = rng.randrange(6)
    if change == 0:
        dims.reverse()
    elif change == 1:
        del dims[at]
    elif change == 2:
        dims.insert(at, rng.choice((0, 1, 2)))
    else:
        dims[at] = rng.choice((0, 1, dims[at] - 1, dims[at] + 1, 2 * dims[at], 2**31, 2**63))
    tensor.dims = tuple(dims)
    if rng.random() < 0.5:
        _resize(builder, tensor.name, rng)


def wrong_format(builder: GgufBuilder, rng: random.Random) -> None:
    """A tensor is stored otherwise; sometimes as many bytes as that takes."""
    tensor = rng.choice(builder.tensors)
    tensor.type_id = rng.choice((*BLOCK_BYTES, F32_TYPE, F16_TYPE, *range(45), 2**32 - 1))
    if rng.random() < 0.5:
        _resize(builder, tensor.name, rng)


def wrong_tensors(builder: GgufBuilder, rng: random.Random) -> None:
    """A tensor is missing, there twice, one too many, or two have changed names."""
    tensor, other = rng.choice(builder.tensors), rng.choice(builder.tensors)
    change = rng.randrange(4)
    if change == 0:
        builder.tensors.remove(tensor)
    elif change == 1:
        builder.tensors.append(copy(tensor))
    elif change == 2:
        builder.tensors.append(replace(tensor, name=f"blk.0.{rng.choice('xyz')}.weight"))
    else:
        tensor.name, other.name = other.name, tensor.name


def wrong_offset(builder: GgufBuilder, rng: random.Random) -> None:
    """A tensor lies elsewhere."""
    total = sum(len(tensor.data) for tensor in builder.tensors)
    rng.choice(builder.tensors).offset = rng.choice((0, 16, 32, total, 2**40, 2**64 - 32))


def wrong_counts(builder: GgufBuilder, rng: random.Random) -> None:
    """The header counts more or fewer entries or tensors than there are."""
    name = rng.choice(("n_entries", "n_tensors"))
    true = len(builder.entries if name == "n_entries" else builder.tensors)
    setattr(builder, name, rng.choice((0, 1, true - 1, true + 1, 2**20, 2**32, 2**64 - 1)))


def odd_numbers(builder: GgufBuilder, rng: random.Random) -> None:
    """Values or scales of some tensors are NaN, infinite, or anything."""
    for tensor in rng.sample(builder.tensors, rng.choice((1, 3, len(builder.tensors)))):
        size = len(tensor.data)
        pattern = rng.choice((b"\x00\x7e", b"\x00\x7c", b"\xff\xff", b"\x00\x00\xc0\x7f", b""))
        tensor.data = (pattern * size)[:size] if pattern else rng.randbytes(size)


DAMAGES: tuple[Damage, ...] = (
    wrong_value,
    missing_key,
    near_values,
    another_model,
    wrong_dimensions,
    wrong_format,
    wrong_tensors,
    wrong_offset,
    wrong_counts,
    odd_numbers,
)


def flip_bits(content: bytearray, end: int, rng: random.Random) -> None:
    """Turn some of the first `end` bits over."""
    for _ in range(rng.choice((1, 1, 8))):
        content[rng.randrange(end)] ^= 1 << rng.randrange(8)


def cut(content: bytearray, end: int, rng: random.Random) -> None:
    """Leave only a part, sometimes no more than a part of the first `end` bytes."""
    del content[rng.randrange(rng.choice((end, len(content)))) :]


BYTE_DAMAGES = (flip_bits, flip_bits, cut)


def damaged(whole: GgufBuilder, rng: random.Random) -> bytes:
    """The file of a model with one damage of any kind."""
    at = rng.randrange(len(DAMAGES) + len(BYTE_DAMAGES))
    if at < len(DAMAGES):
        builder = copied(whole)
        DAMAGES[at](builder, rng)
        return builder.build()
    content = bytearray(whole.build())
    BYTE_DAMAGES[at - len(DAMAGES)](content, len(whole.header()), rng)
    return bytes(content)


SHARDS = 3
TENSOR_DAMAGES = (wrong_dimensions, wrong_format, wrong_tensors, wrong_offset, wrong_counts)


def damaged_shards(whole: GgufBuilder, rng: random.Random) -> list[bytes | None]:
    """The files of a split model with one damage of any kind; None is a missing file."""
    dealt = [copied(shard) for shard in shards(whole, SHARDS)]
    at = rng.randrange(SHARDS)
    change = rng.randrange(8)
    if change == 0:
        rng.choice(TENSOR_DAMAGES)(dealt[at], rng)
    elif change == 1:
        _wrong_split_key(dealt[at], rng)
    elif change == 2:
        moved = rng.choice(dealt[at].tensors)
        dealt[at].tensors.remove(moved)
        rng.choice(dealt).tensors.append(moved)
    files: list[bytes | None] = [shard.build() for shard in dealt]
    if change == 3:
        files[at], files[at - 1] = files[at - 1], files[at]
    elif change == 4:
        files[at] = rng.choice((None, b"", files[at - 1], b"GGUF"))
    elif change == 5:
        family = rng.choice(sorted(FAMILIES))
        files[at] = shards(tiny_model(family), SHARDS)[at].build()
    elif change > 5:
        content = bytearray(dealt[at].build())
        rng.choice(BYTE_DAMAGES)(content, len(dealt[at].header()), rng)
        files[at] = bytes(content)
    return files


def write_shards(folder: Path, files: Sequence[bytes | None]) -> Path:
    """Put the files of a split model into `folder`; returns where the first one belongs."""
    names = [f"tiny-{at + 1:05d}-of-{len(files):05d}.gguf" for at in range(len(files))]
    for name, content in zip(names, files, strict=True):
        if content is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(content)
    return folder / names[0]


def _wrong_split_key(builder: GgufBuilder, rng: random.Random) -> None:
    """One of the keys that say how a model is split is missing or something else."""
    at = rng.randrange(len(builder.entries) - 3, len(builder.entries))
    if rng.random() < 0.3:
        del builder.entries[at]
    else:
        builder.entries[at] = builder.entries[at][0], encoded(rng.choice(ODD_VALUES))


def _varied(values: Any, rng: random.Random) -> dict[str, Any]:
    varied = dict(values)
    for key in rng.sample(sorted(varied), rng.choice((1, 1, 2, 3))):
        value = varied[key]
        if isinstance(value, list):
            varied[key] = _varied_list(value, rng)
        elif isinstance(value, bool):
            varied[key] = not value
        elif isinstance(value, int):
            varied[key] = rng.choice((*SMALL_VALUES, value + 1, max(0, value - 1)))
        elif isinstance(value, float):
            varied[key] = value * rng.choice((-1.0, 0.0, 0.5, 2.0, 1e6))
    return varied


def _varied_list(value: Sequence[Any], rng: random.Random) -> list[Any]:
    change = rng.randrange(3)
    if change == 0:
        return list(value[:-1])
    if change == 1:
        return [*value, value[-1]]
    return [rng.choice((item, 0, 1, 3, 9)) for item in value]


def _tell(builder: GgufBuilder, values: dict[str, Any]) -> None:
    prefix = architecture_of(builder)
    told = {f"{prefix}.{key}": encoded(value) for key, value in values.items()}
    builder.entries = [(key, told.get(str(key), entry)) for key, entry in builder.entries]


def _resize(builder: GgufBuilder, name: str, rng: random.Random) -> None:
    """Give a tensor the bytes its sizes and type take, if these are few."""
    tensor = next(tensor for tensor in builder.tensors if tensor.name == name)
    count = 1
    for dim in tensor.dims:
        count *= dim
    per_block = {F32_TYPE: 128, F16_TYPE: 64, **BLOCK_BYTES}.get(tensor.type_id)
    if per_block is not None and count <= 64 * VOCABULARY:
        tensor.data = rng.randbytes(count * per_block // 32)
