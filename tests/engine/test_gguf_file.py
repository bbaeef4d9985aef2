"""Guards against reading a sound file differently from what it says.

The `gguf` package is the independent reader; a view that copies, lies elsewhere or can be
written to, and metadata of another value or type, are the failures looked for.
"""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.gguf_strings import StringArray
from stratadesk.engine.tensor_formats import HOST_FORMATS, format_by_id, format_by_name
from stratadesk.errors import GgufError
from tests.gguf_builder import (
    BOOL,
    F32,
    I32,
    U64,
    GgufBuilder,
    numbers,
    scalar,
    small_model,
    string,
)
from tests.gguf_builder import strings as string_array

SMALL_FILES = ("qwen3moe-iq4_xs", "qwen35moe-ud-q4k", "qwen3-tied-q6_k", "qwen3moe-f16")


def plain(value: object) -> object:
    """The value as the reference reader gives it."""
    if isinstance(value, StringArray):
        return value.to_list()
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", SMALL_FILES)
def test_equals_the_reference_reader(data_dir: Path, name: str) -> None:
    path = data_dir / "models" / f"{name}.gguf"
    reference = GGUFReader(path)
    with GgufFile.open(path) as gguf:
        assert gguf.file_bytes == path.stat().st_size
        assert list(gguf.tensors) == [tensor.name for tensor in reference.tensors]
        for tensor in reference.tensors:
            info = gguf.tensors[tensor.name]
            assert info.shape == tuple(int(size) for size in reversed(tensor.shape))
            assert info.format.name == tensor.tensor_type.name
            assert (info.offset, info.n_bytes) == (tensor.data_offset, tensor.n_bytes)
            stored = tensor.data.reshape(-1).view(np.uint8)
            np.testing.assert_array_equal(gguf.data(tensor.name), stored)
        for key, entry in reference.fields.items():
            if not key.startswith("GGUF."):
                ours = plain(gguf.metadata[key])
                assert (type(ours), ours) == (type(entry.contents()), entry.contents())


def test_version_2_reads_like_version_3(tmp_path: Path) -> None:
    builder = small_model()
    builder.version = 2
    with GgufFile.open(builder.write(tmp_path / "old.gguf")) as gguf:
        assert gguf.architecture == "qwen3moe"


def test_data_is_a_view_that_cannot_be_written(tmp_path: Path) -> None:
    path = small_model().tensor("last", (2,), data=b"12345678").write(tmp_path / "m.gguf")
    with GgufFile.open(path) as gguf:
        view = gguf.data("last")
        assert bytes(view) == b"12345678"
        assert not view.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


def test_views_outlive_close_and_new_ones_are_refused(tmp_path: Path) -> None:
    path = small_model().tensor("last", (2,), data=b"12345678").write(tmp_path / "m.gguf")
    gguf = GgufFile.open(path)
    view = gguf.data("last")
    gguf.close()
    gguf.close()
    assert bytes(view) == b"12345678"
    assert gguf.get_strings("tokenizer.ggml.tokens").to_list() == ["a", "b", "é"]
    with pytest.raises(ValueError, match="closed"):
        gguf.data("last")


def test_close_gives_the_mapping_back(tmp_path: Path) -> None:
    gguf = GgufFile.open(small_model().write(tmp_path / "m.gguf"))
    gguf.close()
    assert all(file.buffer.closed for file in gguf._files)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    named = r"'m\.gguf' has no tensor 'blk\.9\.x'"
    with GgufFile.open(path) as gguf, pytest.raises(GgufError, match=named):
        gguf.data("blk.9.x")


def test_vocabulary_only_file_opens(golden_dir: Path) -> None:
    with GgufFile.open(golden_dir / "ggml-vocab-qwen35.gguf") as gguf:
        assert gguf.tensors == {}
        tokens = gguf.get_strings("tokenizer.ggml.tokens")
        assert len(tokens) == 151_936
        assert tokens[0] == "!"
        assert tokens[:3] == tokens.to_list()[:3]


def typed_file(folder: Path) -> GgufFile:
    builder = GgufBuilder()
    for key, encoded in {
        "int": scalar(U64, 2**64 - 1),
        "negative": scalar(I32, -3),
        "float": scalar(F32, 0.5),
        "nan": scalar(F32, float("nan")),
        "bool": scalar(BOOL, 1),
        "text": string("Привет 你好 🦙"),
        "latin": string(b"caf\xe9"),
        "ints": numbers(I32, [1, -2]),
        "floats": numbers(F32, [0.5, 2.0]),
        "bools": numbers(BOOL, [1, 0]),
        "texts": string_array(["a", "", "ж"]),
        "broken": string_array([b"good", b"\xff\xfe"]),
        "none": string_array([]),
    }.items():
        builder.add(key, encoded)
    return GgufFile.open(builder.write(folder / "typed.gguf"))


def test_getters_return_python_values(tmp_path: Path) -> None:
    with typed_file(tmp_path) as gguf:
        assert gguf.get_int("int") == 2**64 - 1
        assert gguf.get_int("negative") == -3
        assert gguf.get_float("float") == 0.5
        assert gguf.get_float("negative") == -3.0
        assert gguf.get_bool("bool") is True
        assert gguf.get_str("text") == "Привет 你好 🦙"
        assert gguf.get_ints("ints") == [1, -2]
        assert gguf.get_floats("floats") == [0.5, 2.0]
        assert gguf.get_bools("bools") == [True, False]
        assert list(gguf.get_strings("texts")) == ["a", "", "ж"]
        assert list(gguf.get_strings("none")) == []


def test_getters_return_the_default_of_a_missing_key(tmp_path: Path) -> None:
    with typed_file(tmp_path) as gguf:
        assert gguf.get_int("absent", 0) == 0
        assert gguf.get_float("absent", 0.0) == 0.0
        assert gguf.get_str("absent", "") == ""
        assert gguf.get_bool("absent", False) is False


@pytest.mark.parametrize(
    ("getter", "key", "sentence"),
    [
        ("get_int", "absent", "'typed.gguf' lacks the metadata key 'absent' (a whole number)."),
        ("get_int", "bool", "'bool' in 'typed.gguf' is true or false, not a whole number."),
        ("get_int", "float", "'float' in 'typed.gguf' is a number, not a whole number."),
        ("get_float", "text", "'text' in 'typed.gguf' is a text, not a number."),
        ("get_float", "nan", "'nan' in 'typed.gguf' is nan, not a finite number."),
        ("get_str", "ints", "'ints' in 'typed.gguf' is an array of 2 int32 numbers, not a text."),
        ("get_str", "latin", "'latin' in 'typed.gguf' is a text that is not UTF-8, not a text."),
        ("get_bool", "int", "'int' in 'typed.gguf' is a whole number, not true or false."),
        ("get_strings", "ints", "is an array of 2 int32 numbers, not an array of strings."),
        ("get_ints", "floats", "is an array of 2 float32 numbers, not an array of whole numbers."),
        ("get_ints", "bools", "is an array of 2 booleans, not an array of whole numbers."),
        ("get_bools", "ints", "not an array of true and false."),
        ("get_floats", "texts", "is an array of 3 strings, not an array of numbers."),
    ],
)
def test_getters_name_key_got_and_wanted(
    tmp_path: Path, getter: str, key: str, sentence: str
) -> None:
    with typed_file(tmp_path) as gguf, pytest.raises(GgufError) as caught:
        getattr(gguf, getter)(key)
    assert sentence in caught.value.sentence


def test_only_the_broken_string_of_an_array_fails(tmp_path: Path) -> None:
    with typed_file(tmp_path) as gguf:
        broken = gguf.get_strings("broken")
        assert broken[0] == "good"
        for access in (broken.to_list, lambda: broken[1], lambda: broken[-1]):
            with pytest.raises(GgufError, match="String 1 of the value of 'broken'"):
                access()


def test_string_arrays_behave_like_sequences(tmp_path: Path) -> None:
    with typed_file(tmp_path) as gguf:
        texts = gguf.get_strings("texts")
        assert texts[-1] == "ж"
        assert texts[::-1] == ["ж", "", "a"]
        assert "ж" in texts
        assert texts.index("") == 1
        with pytest.raises(IndexError):
            texts[3]


def test_formats_have_the_sizes_of_the_format_description() -> None:
    q4_k = format_by_name("Q4_K")
    assert q4_k is not None
    assert q4_k is format_by_id(12)
    assert q4_k.row_bytes(512) == 288
    with pytest.raises(ValueError, match="whole blocks"):
        q4_k.row_bytes(100)
    assert format_by_id(4) is None
    assert format_by_name("Q4_2") is None
    assert all(format_by_name(name) for name in HOST_FORMATS)
