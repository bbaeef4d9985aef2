"""Guards against damaged files that end in a traceback, a wrong explanation or a huge buffer.

"Truncated" may be said only when bytes are really missing.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from stratadesk.engine import gguf_cursor
from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.gguf_mapping import MappedFile
from stratadesk.errors import ModelError, UnsupportedModelError
from stratadesk.exit_codes import ExitCode
from tests.gguf_builder import (
    BOOL,
    F32_TYPE,
    I32,
    Q8_0_TYPE,
    STRING,
    U32,
    GgufBuilder,
    numbers,
    scalar,
    small_model,
    string,
    strings,
    text,
)

ARRAY = 9


def failure(path: Path) -> ModelError:
    """The error that opening gives; it must be one sentence that names the file."""
    with pytest.raises(ModelError) as caught:
        GgufFile.open(path)
    error = caught.value
    assert error.exit_code is ExitCode.MODEL_UNUSABLE
    assert error.sentence.endswith(".")
    assert ". " not in error.sentence
    assert "\n" not in error.sentence
    return error


def sentence_of(folder: Path, content: bytes) -> str:
    path = folder / "m.gguf"
    path.write_bytes(content)
    sentence = failure(path).sentence
    assert "m.gguf" in sentence
    return sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello world", "not a GGUF file (it starts with 'hell', not with GGUF)"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"PK\x03\x04 and more", "zip archive"),
        (b"tjgg" + bytes(40), "old GGML file"),
        (b"GG", "is truncated: the fixed part ends at byte 4, but the file has only 2 bytes"),
        (b"GGUF" + bytes(2), "is truncated: the version ends at byte 8"),
        (b"GGUF" + struct.pack("<I", 3), "is truncated"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4; versions 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "GGUF version 0;"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1000), "announces 1,000 metadata entries"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1000, 0), "announces 1,000 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "tensors, more than the 131,072 allowed"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**64 - 1), "more than the 65,536 allowed"),
    ],
)
def test_files_that_are_not_or_hardly_gguf(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in sentence_of(tmp_path, content)


def test_missing_file_is_named_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such.gguf"
    assert failure(path).sentence == f"There is no file '{path}'."


def test_unreadable_file_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_model().write(tmp_path / "m.gguf")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert failure(path).sentence == "'m.gguf' cannot be read: Permission denied."


def test_name_that_no_system_takes(tmp_path: Path) -> None:
    assert "cannot be read" in failure(tmp_path / "a\0b.gguf").sentence


def test_special_file_is_refused_before_it_blocks(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe.gguf")
    assert failure(tmp_path / "pipe.gguf").sentence == "'pipe.gguf' is not a regular file."


def test_truncated_tensor_data_gives_both_sizes(tmp_path: Path) -> None:
    content = small_model().build()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[:-60])
    error = failure(path)
    needed = f"{len(content):,}"
    assert error.sentence == (
        f"'cut.gguf' is truncated: it needs {needed} bytes and has {len(content) - 60:,}; "
        "the data end within tensor 'token_embd.weight'."
    )
    assert error.remedy == "Download it again (60 B are missing)."


def test_missing_padding_at_the_end_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GgufBuilder().tensor("t", (3,)).build()[:-20])
    with GgufFile.open(path) as gguf:
        assert gguf.data("t").size == 12


@pytest.mark.parametrize("cut", [30, 60, 100, 150])
def test_header_cut_short_is_an_error_about_the_header(tmp_path: Path, cut: int) -> None:
    sentence = sentence_of(tmp_path, small_model().build()[:cut])
    assert any(words in sentence for words in ("truncated", "claims", "announces"))


def damaged(change: Callable[[GgufBuilder], object]) -> bytes:
    builder = small_model()
    change(builder)
    return builder.build()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.tensor("x", (8,), 99), "Tensor 'x' of 'm.gguf' has the unknown type 99; "),
        (lambda b: b.tensor("x", (8,), Q8_0_TYPE), "rows of 8 values, but Q8_0 needs multiples of"),
        (lambda b: b.tensor("x", (8,), offset=7), "offset 7, which is not a multiple of the align"),
        (lambda b: b.tensor("x", (8,), offset=32), "'token_embd.weight' and 'x' of 'm.gguf' overl"),
        (lambda b: b.tensor("x", (8,), offset=2**40), "'x' of 'm.gguf' lies beyond the end"),
        (lambda b: b.tensor("x", (8,), offset=2**64 - 32), "lies beyond the end of the file"),
        (lambda b: b.tensor("token_embd.weight", (8,)), "repeats the tensor 'token_embd.weight'"),
        (lambda b: b.tensor("x", ()), "has 0 dimensions; 1 to 4 are possible"),
        (lambda b: b.tensor("x", (1, 1, 1, 1, 1)), "has 5 dimensions"),
        (lambda b: b.tensor("x", (8, 0)), "Tensor 'x' of 'm.gguf' has a dimension of 0"),
        (lambda b: b.add("general.name", string("again")), "the metadata key 'general.name' twice"),
        (lambda b: b.add(b"\xff\xff", string("x")), "metadata key 8 at byte"),
        (lambda b: b.add("k", struct.pack("<II", 77, 0)), "'k' at byte"),
        (lambda b: b.add("k", struct.pack("<IIQ", ARRAY, 77, 0)), "of the unknown type 77"),
        (lambda b: b.add("k", struct.pack("<IIQ", ARRAY, ARRAY, 1)), "an array within an array"),
        (lambda b: b.add("k", struct.pack("<IB", BOOL, 2)), "is the byte 2, not 0 or 1"),
        (lambda b: b.add("k", numbers(BOOL, [0, 1, 7])), "is the byte 7, not 0 or 1"),
        (lambda b: b.add("k", struct.pack("<IQ", STRING, 2**60)), "claims 1,152,921,504,606,846"),
        (lambda b: b.add("k", struct.pack("<IQ", STRING, 5000)), "claims 5,000 bytes, but only 2"),
        (lambda b: b.add("k", struct.pack("<IIQ", ARRAY, I32, 2**62)), "announces 4,611,686,018"),
        (lambda b: b.add("k", struct.pack("<IIQ", ARRAY, I32, 9999)), "9,999 numbers as the value"),
        (lambda b: b.add("k", struct.pack("<IIQ", ARRAY, STRING, 9999)), "9,999 strings as the"),
        (lambda b: b.add("general.alignment", scalar(U32, 0)), "is 0, not a power of two"),
        (lambda b: b.add("general.alignment", scalar(U32, 48)), "is 48, not a power of two"),
        (lambda b: b.add("general.alignment", scalar(U32, 2**31)), "not a power of two up to"),
        (lambda b: b.add("general.alignment", string("x")), "is a text, not a power of two"),
        (lambda b: b.add("split.count", scalar(U32, 3)), "says shard 1 of 3, its name says 1 of 1"),
        (
            lambda b: b.add("split.tensors.count", scalar(I32, 9)),
            "announces 9 tensors over 1 files",
        ),
    ],
)
def test_damage_is_explained_and_not_called_truncated(
    tmp_path: Path, change: Callable[[GgufBuilder], object], words: str
) -> None:
    sentence = sentence_of(tmp_path, damaged(change))
    assert words in sentence
    assert "truncated" not in sentence


def test_unknown_tensor_type_lists_the_supported_ones(tmp_path: Path) -> None:
    path = small_model().tensor("x", (8,), 99).write(tmp_path / "m.gguf")
    error = failure(path)
    assert isinstance(error, UnsupportedModelError)
    assert "Q4_K" in error.sentence


def test_dimensions_whose_product_overflows_64_bits(tmp_path: Path) -> None:
    huge = small_model().tensor("x", (2**40, 2**40, 2**40), F32_TYPE, b"")
    words = "claims 5,316,911,983,139,663,491,615,228,241,121,378,304 bytes, more than any model"
    assert words in sentence_of(tmp_path, huge.build())


def test_strings_that_run_past_the_end(tmp_path: Path) -> None:
    array = struct.pack("<IIQ", ARRAY, STRING, 3) + text("a") + struct.pack("<Q", 10**6) + bytes(99)
    builder = GgufBuilder().add("k", array)
    assert "announces 3 strings, but the file of" in sentence_of(tmp_path, builder.build())


def test_other_alignments_are_followed(tmp_path: Path) -> None:
    builder = GgufBuilder(alignment=128).add("general.alignment", scalar(U32, 128))
    builder.tensor("a", (3,), data=b"a" * 12).tensor("b", (3,), data=b"b" * 12)
    with GgufFile.open(builder.write(tmp_path / "m.gguf")) as gguf:
        assert bytes(gguf.data("b")) == b"b" * 12
        assert gguf.tensors["b"].offset % 128 == 0


def test_gaps_between_tensors_are_allowed(tmp_path: Path) -> None:
    builder = GgufBuilder().tensor("a", (8,)).tensor("b", (8,), offset=64)
    content = builder.build() + b"b" * 32
    path = tmp_path / "gap.gguf"
    path.write_bytes(content)
    with GgufFile.open(path) as gguf:
        assert bytes(gguf.data("b")) == b"b" * 32


def test_header_that_never_ends_stops_at_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "hole.gguf"
    start = small_model()
    start.entries.append(("k", struct.pack("<IIQ", ARRAY, STRING, 2**40)))
    path.write_bytes(start.header())
    with path.open("r+b") as file:
        file.truncate(2**40)
    assert "more than the 4,194,304 allowed" in failure(path).sentence


def test_header_is_not_followed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_cursor, "MAX_HEADER_BYTES", 512)
    path = small_model().add("k", strings(["x" * 60] * 10)).write(tmp_path / "m.gguf")
    assert failure(path).sentence == "The header of 'm.gguf' does not end within 512 B."


def test_control_characters_of_a_file_do_not_reach_the_sentence(tmp_path: Path) -> None:
    path = small_model().tensor("\x1b[2Jevil", (8,), 99).write(tmp_path / "m.gguf")
    sentence = failure(path).sentence
    assert "\x1b" not in sentence
    assert "\\x1b[2Jevil" in sentence


def test_error_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    close = MappedFile.close

    def note(file: MappedFile) -> None:
        closed.append(file.label)
        close(file)

    monkeypatch.setattr(MappedFile, "close", note)
    failure(small_model().tensor("x", (8,), offset=7).write(tmp_path / "m.gguf"))
    assert closed == ["'m.gguf'"]
