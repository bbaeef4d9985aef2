"""Guards against headers whose numbers become memory: 2 TiB of state for a file of 100 KiB.

Each whole number that any family's header holds, and each that is read with a default, is given
values that fit nothing. The model is planned with or refused as unusable, in one sentence, and
never called too big for this machine.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratadesk.cli import main
from stratadesk.engine.architectures import SUPPORTED
from stratadesk.engine.commands import EngineSettings
from stratadesk.engine.forecast import forecast
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.hyperparameters import KeyedInt, told_by_keys
from stratadesk.engine.loading import load_model
from stratadesk.errors import GgufError
from stratadesk.exit_codes import ExitCode
from tests.engine.fuzzing import copied
from tests.gguf_builder import I32, U64, GgufBuilder, numbers, scalar
from tests.tiny_models import FAMILIES, tiny_model

ODD = (0, 1, 2**31 - 1, 2**40, -1)
SECONDS = 5.0
"""CPU time of one plan of a tiny model: usually 0.02, and minutes once a number of the header is
counted through. What lies between is the machine's."""

OF_NO_CONSEQUENCE = (
    *("context_length", "original_context_length", "full_attention_interval"),
    *("sliding_window", "sliding_window_pattern", "dimension_sections"),
    *("indexer.top_k", "ple.eos_token_id", "ple.layer_multipliers"),
    *("key_length", "value_length", "head_count_kv", "olmoe.expert_feed_forward_length"),
)
"""Keys that may be far too large without a tensor or a byte of memory that depends on them; the
last four in a family that has others in their place."""


def keys_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys of whole numbers that planning asks for, whether the header has them or not."""
    asked = set()
    get_int = GgufFile.get_int

    def spy(self: GgufFile, key: str, default: int | None = None) -> int:
        asked.add(key)
        return get_int(self, key, default)

    with monkeypatch.context() as patched:
        patched.setattr(GgufFile, "get_int", spy)
        assert forecast(path, EngineSettings(max_context=64)).trouble == ""
    return asked


def variants(name: str, asked: set[str]) -> Iterator[tuple[str, int, bytes]]:
    """Every key in turn with every odd value, in each place of a list: key, value, encoded."""
    values = {f"{name}.{key}": value for key, value in FAMILIES[name].items()}
    for key in sorted({*asked, *values}):
        usual = values.get(key, 0)
        for odd in ODD:
            if isinstance(usual, list) and not isinstance(usual[0], bool):
                for place in range(len(usual)):
                    yield key, odd, encoded_list([*usual[:place], odd, *usual[place + 1 :]])
            elif isinstance(usual, int) and not isinstance(usual, bool):
                yield key, odd, scalar(I32 if abs(odd) < 2**31 else U64, odd)


def encoded_list(values: list[int]) -> bytes:
    kind = 11 if min(values) < 0 else U64 if max(values) >= 2**31 else I32
    return numbers(kind, values)


def changed(whole: GgufBuilder, key: str, value: bytes) -> GgufBuilder:
    builder = copied(whole)
    others = [entry for entry in builder.entries if entry[0] != key]
    builder.entries = [*others, (key, value)]
    return builder


def planned(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[ExitCode, str]:
    started = time.process_time()
    code = main(["plan", "-m", str(path), "--device", "host"])
    assert time.process_time() - started < SECONDS
    return ExitCode(code), capsys.readouterr().err


@pytest.mark.parametrize("name", SUPPORTED)
def test_no_number_of_a_header_becomes_memory(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, path = tiny_model(name), tmp_path / "tiny.gguf"
    asked = keys_read(whole.write(path), monkeypatch)
    assert planned(path, capsys)[0] == ExitCode.OK
    refused = set()
    for key, odd, value in variants(name, asked):
        code, said = planned(changed(whole, key, value).write(path), capsys)
        assert code in (ExitCode.OK, ExitCode.MODEL_UNUSABLE), (key, odd, said)
        assert said.count("\n") == (code != ExitCode.OK), (key, odd, said)
        if code != ExitCode.OK:
            refused.add(key)
        elif odd >= 2**31 - 1:
            assert key.endswith(OF_NO_CONSEQUENCE), (key, odd)
    assert len(refused) > 10


SIZES: dict[str, dict[str, Any]] = {
    "qwen35moe": {
        "ssm.state_size": 17,
        "ssm.time_step_rank": 3,
        "ssm.group_count": 2,
        "ssm.inner_size": 64,
        "ssm.conv_kernel": 5,
        "expert_count": 5,
        "expert_feed_forward_length": 64,
        "expert_shared_feed_forward_length": 64,
        "attention.head_count": 3,
        "attention.head_count_kv": 2,
        "block_count": 5,
        "context_length": 0,
    },
    "qwen4exp": {
        "hyper_connection.count": 3,
        "hyper_connection.low_rank": 2**31 - 1,
        "attention.compress_ratios": [0, 2**31 - 1],
        "attention.indexer.head_count": 2**20,
        "embedding_length_per_layer_input": 9,
        "ple.conv_kernel": 2**31 - 1,
    },
    "deepseek2": {"attention.kv_lora_rank": 33, "attention.key_length_mla": 2**31 - 1},
}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(name, key, value) for name, sizes in SIZES.items() for key, value in sizes.items()],
)
def test_what_does_not_fit_is_told_by_key_and_value(
    name: str, key: str, value: Any, tmp_path: Path
) -> None:
    """The sentence names both, and loading says the same as planning."""
    encoded = encoded_list(value) if isinstance(value, list) else scalar(I32, value)
    path = changed(tiny_model(name), f"{name}.{key}", encoded).write(tmp_path / "tiny.gguf")
    told = forecast(path, EngineSettings(max_context=64)).trouble
    assert f"{name}.{key}" in told
    assert str(value) in told
    with pytest.raises(GgufError) as caught:
        load_model(path, EngineSettings(max_context=64), lambda progress: None)
    assert caught.value.sentence == told
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["deepseek2", "glm4moe"])
@pytest.mark.parametrize(("count", "held"), [(0, "block 0 is dense"), (2, "block 1 routes to")])
def test_blocks_of_another_kind_than_the_header_says_are_told_by_its_key(
    name: str, count: int, held: str, tmp_path: Path
) -> None:
    key = f"{name}.leading_dense_block_count"
    path = changed(tiny_model(name), key, scalar(I32, count)).write(tmp_path / "tiny.gguf")
    told = forecast(path, EngineSettings(max_context=64)).trouble
    assert f"{key} is {count}, but {held}" in told
    with pytest.raises(GgufError, match=f"{key} is {count}, but {held}"):
        load_model(path, EngineSettings(max_context=64), lambda progress: None)


def test_a_head_of_any_size_is_not_turned_before_it_is_checked(tmp_path: Path) -> None:
    """Without `rope.dimension_count` all of a head rotates: 8 GiB of frequencies here."""
    values = {key: value for key, value in FAMILIES["qwen3"].items() if "dimension" not in key}
    whole = tiny_model("qwen3", values)
    size = scalar(I32, 2**31 - 2)
    path = changed(whole, "qwen3.attention.key_length", size).write(tmp_path / "tiny.gguf")
    assert "2147483646" in forecast(path, EngineSettings()).trouble


def test_numbers_remember_where_they_are_from() -> None:
    heads, size = KeyedInt(2), KeyedInt(16)
    heads.keys, size.keys = {"a.heads": 2}, {"a.size": 16}
    assert told_by_keys([2 * heads * size + 1]) == ", as a.heads is 2 and a.size is 16"
    assert told_by_keys([1 + (size - 1) // 3]) == ", as a.size is 16"
    assert 2 * heads * size + 1 == 65
    assert told_by_keys([65, 3]) == ""
